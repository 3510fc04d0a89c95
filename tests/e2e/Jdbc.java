// One JDBC session that prints what it sees; run directly and through the pooler, the two outputs are compared.
import java.io.StringReader;
import java.io.StringWriter;
import java.sql.*;
import java.util.Properties;
import org.postgresql.PGConnection;

public class Jdbc {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("user", args[1]);
        properties.setProperty("password", args[2]);
        properties.setProperty("prepareThreshold", "3");
        if (args.length > 3) {
            properties.setProperty("ssl", "true");
            properties.setProperty("sslmode", "verify-full");
            properties.setProperty("sslrootcert", args[3]);
        }
        try (Connection conn = DriverManager.getConnection(args[0], properties)) {
            run(conn);
        }
    }

    static void run(Connection conn) throws Exception {
        try (Statement st = conn.createStatement()) {
            st.execute("drop table if exists jdbc_rows");
            st.execute("create table jdbc_rows(id int primary key, body text)");
        }
        try (PreparedStatement ps = conn.prepareStatement("insert into jdbc_rows values (?, ?)")) {
            for (int i = 0; i < 500; i++) {
                ps.setInt(1, i);
                ps.setString(2, "b" + i);
                ps.addBatch();
            }
            System.out.println("batch " + ps.executeBatch().length);
        }
        try (PreparedStatement ps = conn.prepareStatement("select body from jdbc_rows where id = ?")) {
            for (int i = 0; i < 20; i++) {
                ps.setInt(1, i);
                try (ResultSet rs = ps.executeQuery()) {
                    rs.next();
                    System.out.println(rs.getString(1));
                }
            }
        }
        conn.setAutoCommit(false);
        try (PreparedStatement ps = conn.prepareStatement("select id from jdbc_rows order by id")) {
            ps.setFetchSize(50);
            long sum = 0;
            try (ResultSet rs = ps.executeQuery()) {
                while (rs.next()) sum += rs.getInt(1);
            }
            System.out.println("paged " + sum);
        }
        conn.commit();
        try (Statement st = conn.createStatement()) {
            st.executeQuery("select 1/0");
        } catch (SQLException error) {
            System.out.println(error.getSQLState());
        }
        conn.rollback();
        conn.setAutoCommit(true);
        var copy = conn.unwrap(PGConnection.class).getCopyAPI();
        StringBuilder rows = new StringBuilder();
        for (int i = 1000; i < 3000; i++) rows.append(i).append("\tc\n");
        System.out.println("copied in " + copy.copyIn("copy jdbc_rows from stdin", new StringReader(rows.toString())));
        StringWriter sink = new StringWriter();
        System.out.println("copied out " + copy.copyOut("copy jdbc_rows to stdout", sink) + " " + sink.toString().length());
        try (Statement st = conn.createStatement()) {
            st.setQueryTimeout(1);
            st.execute("select pg_sleep(10)");
        } catch (SQLException error) {
            System.out.println("cancelled " + error.getSQLState());
        }
        try (Statement st = conn.createStatement()) {
            st.execute("drop table jdbc_rows");
        }
    }
}
