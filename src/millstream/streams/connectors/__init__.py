"""What the author of a connector needs: two protocols, the row that declares it, and a kit that tests it."""
