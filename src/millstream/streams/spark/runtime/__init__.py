"""What Spark runs on here: Java, the session, its Python workers and the processes that they are forked from."""
