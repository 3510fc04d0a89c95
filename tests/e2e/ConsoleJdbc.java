// One JDBC session with the admin console that prints what it sees: in each query mode the same.
import java.sql.*;
import java.util.Properties;

public class ConsoleJdbc {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("user", args[1]);
        properties.setProperty("password", args[2]);
        properties.setProperty("preferQueryMode", args[3]);
        properties.setProperty("prepareThreshold", "2");
        properties.setProperty("ApplicationName", "metrics");
        try (Connection conn = DriverManager.getConnection(args[0], properties)) {
            for (int index = 4; index < args.length; index++) {
                // Named and in binary from the second time on.
                try (PreparedStatement ps = conn.prepareStatement("SHOW " + args[index])) {
                    for (int times = 0; times < 4; times++) {
                        try (ResultSet rs = ps.executeQuery()) {
                            print(args[index], rs);
                        }
                    }
                }
            }
            run(conn);
            if (!args[3].equals("simple")) {
                extended(conn);
            }
        }
    }

    static void print(String title, ResultSet rs) throws Exception {
        ResultSetMetaData meta = rs.getMetaData();
        StringBuilder line = new StringBuilder(title);
        for (int column = 1; column <= meta.getColumnCount(); column++) {
            line.append(" ").append(meta.getColumnName(column)).append(":").append(meta.getColumnTypeName(column));
        }
        System.out.println(line);
        while (rs.next()) {
            line = new StringBuilder(" ");
            for (int column = 1; column <= meta.getColumnCount(); column++) {
                line.append(" ").append(rs.getObject(column));
            }
            System.out.println(line);
        }
    }

    static void run(Connection conn) throws Exception {
        try (Statement st = conn.createStatement()) {
            st.setMaxRows(2);
            try (ResultSet rs = st.executeQuery("SHOW STATE")) {
                print("state", rs);
            }
            for (String text : new String[] {"SHOW nix", "SELECT 1", "KILL nix"}) {
                try {
                    st.execute(text);
                } catch (SQLException error) {
                    System.out.println(error.getSQLState() + " " + error.getMessage());
                }
            }
            st.execute("PAUSE app");
            st.execute("RESUME app");
            st.execute("RELOAD");
            System.out.println("updates " + st.getUpdateCount());
        }
    }

    // What pools of connections do around the work, and what the simple protocol of the console does not know.
    static void extended(Connection conn) throws Exception {
        System.out.println("valid " + conn.isValid(5));
        System.out.println("isolation " + conn.getTransactionIsolation());
        conn.setClientInfo("ApplicationName", "other");
        try (Statement st = conn.createStatement()) {
            st.execute("SHOW VERSION; SHOW STATE");
            do {
                print("one of two", st.getResultSet());
            } while (st.getMoreResults());
            st.addBatch("PAUSE app");
            st.addBatch("RESUME app");
            System.out.println("batch " + st.executeBatch().length);
            st.execute("DISCARD ALL");
        }
        try (PreparedStatement ps = conn.prepareStatement("KILL_CLIENT ?")) {
            ps.setInt(1, 1);
            ps.execute();
        } catch (SQLException error) {
            System.out.println(error.getSQLState() + " " + error.getMessage());
        }
        System.out.println("valid " + conn.isValid(5));
    }
}
