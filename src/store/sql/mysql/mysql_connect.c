/*
 * Connects to MySQL or MariaDB, in a thread that may block. Fails with the error text of the
 * server or the library, which contains no password.
 *
 * Tests show how the library (3.3) treats TLS: if TLS is enforced but the server has none, it
 * continues without TLS. If the certificate is to be verified, it fails in that case, and checks
 * the authority and the name. So this file checks for itself that TLS is in use.
 */
#include <errmsg.h>
#include <fcntl.h>

#include "store/sql/mysql/mysql.h"

static bool connect_by_socket(const struct sql_config *config) {
    return config->hosts[0].port == 0;
}

static void connect_set_tls(MYSQL *conn, const struct sql_config *config, enum sql_tls tls) {
    my_bool yes = 1, no = 0;

    mysql_optionsv(conn, MYSQL_OPT_SSL_ENFORCE, tls == SQL_TLS_OFF ? &no : &yes);
    mysql_optionsv(conn, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, tls == SQL_TLS_VERIFY ? &yes : &no);
    if (tls == SQL_TLS_VERIFY)
        mysql_optionsv(conn, MYSQL_OPT_SSL_CA, sql_authorities(config));
    if (tls != SQL_TLS_OFF && config->tls_cert != NULL) {
        mysql_optionsv(conn, MYSQL_OPT_SSL_CERT, config->tls_cert);
        mysql_optionsv(conn, MYSQL_OPT_SSL_KEY, config->tls_key);
    }
}

static void connect_set_options(MYSQL *conn, const struct sql_config *config) {
    unsigned seconds = (unsigned)((config->connect_timeout_ms + 999) / 1000), no = 0;
    unsigned protocol = connect_by_socket(config) ? MYSQL_PROTOCOL_SOCKET : MYSQL_PROTOCOL_TCP;
    my_bool off = 0;

    mysql_optionsv(conn, MYSQL_OPT_CONNECT_TIMEOUT, &seconds);
    /* For connecting only: on the loop, the store's own timeouts apply. */
    if (!config->patient) {
        mysql_optionsv(conn, MYSQL_OPT_READ_TIMEOUT, &seconds);
        mysql_optionsv(conn, MYSQL_OPT_WRITE_TIMEOUT, &seconds);
    }
    mysql_optionsv(conn, MYSQL_OPT_PROTOCOL, &protocol);
    mysql_optionsv(conn, MYSQL_OPT_RECONNECT, &off);
    mysql_optionsv(conn, MYSQL_OPT_LOCAL_INFILE, &no);
    mysql_optionsv(conn, MYSQL_SET_CHARSET_NAME, "utf8mb4");
    mysql_optionsv(conn, MYSQL_OPT_NONBLOCK, NULL);
    mysql_optionsv(conn, MYSQL_OPT_CONNECT_ATTR_ADD, "program_name", config->name);
}

/* NULL: failed, with the reason in *ret; *ret_again: try again without TLS. */
static MYSQL *connect_try(const struct sql_config *config, enum sql_tls tls, bool *ret_again,
                          struct sql_dialled *ret) {
    const struct idem_host_name *host = &config->hosts[0];
    MYSQL *conn = mysql_init(NULL);

    *ret_again = false;
    if (conn == NULL) {
        sql_dialled_fail(ret, IDEM_E_NOMEM, false, "no memory for a connection");
        return NULL;
    }
    connect_set_options(conn, config);
    connect_set_tls(conn, config, tls);
    /* CLIENT_FOUND_ROWS counts matched rows, changed or not. */
    if (mysql_real_connect(conn, connect_by_socket(config) ? "localhost" : host->name, config->user,
                           config->password == NULL ? "" : config->password, config->db, host->port,
                           connect_by_socket(config) ? host->name : NULL,
                           CLIENT_FOUND_ROWS) == NULL) {
        *ret_again = tls == SQL_TLS_PREFER && mysql_errno(conn) == CR_SSL_CONNECTION_ERROR;
        sql_dialled_fail(ret, IDEM_E_REFUSED, false, mysql_error(conn));
    } else if (tls == SQL_TLS_REQUIRE && mysql_get_ssl_cipher(conn) == NULL) {
        sql_dialled_fail(ret, IDEM_E_REFUSED, false, "tls=require, and the server has no TLS");
    } else {
        return conn;
    }
    mysql_close(conn);
    return NULL;
}

MYSQL *maria_connect(const struct sql_config *config, struct sql_dialled *ret) {
    enum sql_tls tls = connect_by_socket(config) ? SQL_TLS_OFF : config->tls;
    bool again;
    MYSQL *conn;

    maria_library_init();
    conn = connect_try(config, tls, &again, ret);
    if (again)
        conn = connect_try(config, SQL_TLS_OFF, &again, ret);
    if (conn != NULL)
        (void)fcntl(mysql_get_socket(conn), F_SETFD, FD_CLOEXEC);
    return conn;
}
