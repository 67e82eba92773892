import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.Statement;

/**
 * Runs statements through Flink's JDBC driver: Query URL STATEMENT.... Prints of each the columns with their types and
 * then the rows, words by tabs; at most as many rows as ROWS of the environment says. "catalogs" and "schemas" ask the
 * driver for its metadata.
 */
public final class Query {
    public static void main(String[] words) throws Exception {
        String most = System.getenv("ROWS");
        int limit = most == null ? Integer.MAX_VALUE : Integer.parseInt(most);
        try (Connection connection = DriverManager.getConnection(words[0])) {
            for (int place = 1; place < words.length; place++) {
                long began = System.nanoTime();
                System.out.println("> " + words[place]);
                run(connection, words[place], limit, began);
            }
        }
        System.out.println("done");
        System.exit(0);
    }

    private static void run(Connection connection, String sql, int limit, long began) throws Exception {
        if (sql.equals("catalogs")) {
            print(connection.getMetaData().getCatalogs(), limit, began);
        } else if (sql.equals("schemas")) {
            print(connection.getMetaData().getSchemas(), limit, began);
        } else {
            try (Statement statement = connection.createStatement()) {
                if (sql.startsWith("SELECT")) {
                    print(statement.executeQuery(sql), limit, began);
                } else if (statement.execute(sql)) {
                    print(statement.getResultSet(), limit, began);
                } else {
                    System.out.println("OK");
                }
            }
        }
    }

    private static void print(ResultSet rows, int limit, long began) throws Exception {
        ResultSetMetaData about = rows.getMetaData();
        StringBuilder head = new StringBuilder();
        for (int column = 1; column <= about.getColumnCount(); column++) {
            head.append(column > 1 ? "\t" : "").append(about.getColumnName(column)).append(" ")
                .append(about.getColumnTypeName(column));
        }
        System.out.println(head);
        for (int count = 0; count < limit && rows.next(); count++) {
            if (count == 0) {
                System.err.println("first row after ms: " + (System.nanoTime() - began) / 1_000_000);
            }
            StringBuilder line = new StringBuilder();
            for (int column = 1; column <= about.getColumnCount(); column++) {
                line.append(column > 1 ? "\t" : "").append(rows.getObject(column));
            }
            System.out.println(line);
        }
        rows.close();
    }
}
