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
#include <openssl/err.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "idem.h"
#include "store/sql/mysql/mysql.h"
#include "store/sql/sql_failure.h"

/*
 * Shields the host from the library's side effects. On first use the library sets SIGPIPE to be
 * ignored in the whole program. Its TLS writes can raise SIGPIPE, leave errors in the thread's
 * OpenSSL queue, and take errors that the host left there for their own.
 */

static void sigpipe_init_library(void) {
    struct sigaction before, after;

    sigaction(SIGPIPE, NULL, &before);
    (void)mysql_library_init(0, NULL, NULL);
    sigaction(SIGPIPE, NULL, &after);
    if ((before.sa_flags & SA_SIGINFO) != 0 || before.sa_handler != SIG_IGN)
        if ((after.sa_flags & SA_SIGINFO) == 0 && after.sa_handler == SIG_IGN)
            sigaction(SIGPIPE, &before, NULL);
}

void maria_library_init(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, sigpipe_init_library);
}

static bool sigpipe_is_pending(void) {
    sigset_t set;

    return sigpending(&set) == 0 && sigismember(&set, SIGPIPE) == 1;
}

/* Without TLS the library writes with MSG_NOSIGNAL, and nothing is to be done. */
void maria_sigpipe_block(struct maria_sigpipe *sigpipe, bool tls) {
    sigset_t pipe;

    sigpipe->tls = tls;
    if (!tls)
        return;
    ERR_clear_error();
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpipe->pending = sigpipe_is_pending();
    pthread_sigmask(SIG_BLOCK, &pipe, &sigpipe->before);
}

void maria_sigpipe_restore(const struct maria_sigpipe *sigpipe) {
    static const struct timespec now;
    sigset_t pipe;

    if (!sigpipe->tls)
        return;
    ERR_clear_error();
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    if (!sigpipe->pending && sigpipe_is_pending())
        (void)sigtimedwait(&pipe, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &sigpipe->before, NULL);
}

/*
 * The errors of MySQL, MariaDB and the library.
 */

#define OMITTED "its words may quote a value, and are left out"
#define READS "a statement's results are still to be read on the connection"

#define FAILURE(number, trouble, code, why, text, help)                                            \
    { NULL, number, SQL_##trouble, IDEM_E_##code, IDEM_WHY_##why, text, help }

/* clang-format off */
static const struct sql_failure failures[] = {
    FAILURE(1062, CONFLICT, REFUSED, CONFLICT, "its unique key has such a row", NULL),
    FAILURE(1169, REFUSED, REFUSED, CONFLICT, "its unique key has such a row", NULL),
    FAILURE(1586, REFUSED, REFUSED, CONFLICT, "its unique key has such a row", NULL),
    FAILURE(1205, AGAIN, RETRY_TX, LOCKED, "a lock was not had in time", NULL),
    FAILURE(3572, REFUSED, RETRY_TX, LOCKED, "a lock was not had at once", NULL),
    /* Or another node of the cluster was first. */
    FAILURE(1213, AGAIN, RETRY_TX, NONE, "a deadlock", NULL),
    FAILURE(1020, AGAIN, RETRY_TX, NONE, "a row has changed since the transaction first read", NULL),
    FAILURE(1317, AGAIN, REFUSED, NONE, NULL, NULL), /* KILL QUERY */
    FAILURE(1969, AGAIN, REFUSED, NONE, OMITTED, NULL), /* max_statement_time */
    FAILURE(3024, AGAIN, REFUSED, NONE, OMITTED, NULL), /* max_execution_time */
    FAILURE(1146, REFUSED, REFUSED, NONE, NULL, SQL_HELP_MIGRATE), /* no such table */
    FAILURE(1305, REFUSED, REFUSED, NONE, NULL, SQL_HELP_MIGRATE), /* no such function */
    FAILURE(1021, FULL, FULL, NONE, "the disk is full", NULL),
    FAILURE(1114, FULL, FULL, NONE, "the table is full", NULL),
    FAILURE(1041, FULL, REFUSED, NONE, OMITTED, NULL), /* out of memory */
    FAILURE(1037, FULL, REFUSED, NONE, OMITTED, NULL), /* out of memory */
    FAILURE(1038, FULL, REFUSED, NONE, OMITTED, NULL), /* out of memory for sorting */
    FAILURE(1153, FULL, REFUSED, CONNECTION, NULL, "raise the server's max_allowed_packet"),
    FAILURE(1044, REFUSED, REFUSED, NONE, NULL, NULL),
    FAILURE(1054, REFUSED, REFUSED, NONE, NULL, NULL),
    FAILURE(1142, REFUSED, REFUSED, NONE, NULL, NULL),
    FAILURE(1143, REFUSED, REFUSED, NONE, NULL, NULL),
    FAILURE(1370, REFUSED, REFUSED, NONE, NULL, NULL),
    FAILURE(1406, REFUSED, REFUSED, NONE, NULL, NULL),
    FAILURE(1243, ELSEWHERE, REFUSED, NONE, OMITTED, NULL), /* unknown prepared statement */
    FAILURE(1615, ELSEWHERE, REFUSED, NONE, OMITTED, NULL), /* to be prepared again */
    FAILURE(1290, ELSEWHERE, REFUSED, NONE, NULL, NULL), /* read_only: no longer the primary */
    FAILURE(1792, ELSEWHERE, REFUSED, NONE, NULL, NULL), /* read-only transaction */
    FAILURE(1836, ELSEWHERE, REFUSED, NONE, NULL, NULL), /* read-only server */
    FAILURE(1047, ELSEWHERE, REFUSED, NONE, OMITTED, NULL), /* the cluster's node is not ready */
    FAILURE(1184, BROKEN, REFUSED, NONE, OMITTED, NULL), /* aborted connection */
    FAILURE(4031, BROKEN, REFUSED, NONE, OMITTED, NULL), /* disconnected while idle */
    FAILURE(1053, BROKEN, REFUSED, CONNECTION, NULL, NULL), /* server shutdown */
    FAILURE(1927, BROKEN, REFUSED, CONNECTION, NULL, NULL), /* the connection was killed */
    FAILURE(2006, BROKEN, REFUSED, CONNECTION, NULL, NULL),
    FAILURE(2013, BROKEN, REFUSED, CONNECTION, NULL, NULL),
    FAILURE(2055, BROKEN, REFUSED, CONNECTION, NULL, NULL),
    FAILURE(2014, BROKEN, INVALID, NONE, "it came out of turn", READS),
    FAILURE(2008, BROKEN, NOMEM, NONE, "no memory", NULL),
    FAILURE(0, REFUSED, REFUSED, NONE, OMITTED, NULL),
};

/* Any other error of the library: the connection is unusable afterwards. */
static const struct sql_failure broken = FAILURE(0, BROKEN, REFUSED, NONE, OMITTED, NULL);
/* clang-format on */

static bool failure_is_of_library(unsigned number) {
    return (number >= 2000 && number <= 2999) || (number >= 5000 && number <= 5999);
}

const struct sql_failure *mysql_failure_find(unsigned number) {
    const struct sql_failure *f = failures;

    while (f->number != 0 && (unsigned)f->number != number)
        f++;
    return f->number == 0 && failure_is_of_library(number) ? &broken : f;
}

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
