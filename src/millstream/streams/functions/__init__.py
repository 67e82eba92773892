"""The functions that SQL may call: names, argument and result types as Flink has them. No engine here."""
