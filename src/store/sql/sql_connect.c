/*
 * Connects outside the loop: the engine's blocking call runs in a thread, on a copy of the
 * configuration. Fails without memory or a thread.
 */
#include <fcntl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "loop/offload.h"
#include "store/sql/sql_engine.h"

/*
 * The URL of a SQL store and the configuration that follows from it:
 *
 *     SCHEME://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]]/DATABASE[?OPTIONS]
 *     SCHEME:/PATH[?OPTIONS]      by a socket; with the options user= and db=
 *
 * Fails on unknown options and values, and on files that cannot be read. No error contains a
 * password.
 */

#define CONFIG(r) ((struct sql_config *)(r)->config)

static int config_read_tls(struct idem_reading *r, const char *name, const char *value,
                           void *field) {
    static const char *const words[] = {[SQL_TLS_OFF] = "off",
                                        [SQL_TLS_PREFER] = "prefer",
                                        [SQL_TLS_REQUIRE] = "require",
                                        [SQL_TLS_VERIFY] = "verify"};

    for (size_t i = SQL_TLS_OFF; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(value, words[i]) == 0) {
            *(enum sql_tls *)field = (enum sql_tls)i;
            return 0;
        }
    return idem_reading_refuse_value(r, name, value, "off, prefer, require, verify");
}

static int config_read_connections(struct idem_reading *r, const char *name, const char *value,
                                   void *field) {
    long n;

    if (idem_read_number(value, SQL_CONNECTIONS_MAX, &n) < 0 || n < 1)
        return idem_reading_refuse_value(r, name, value, "1 to 64");
    *(size_t *)field = (size_t)n;
    return 0;
}

#define AT(field) offsetof(struct sql_config, field)

static const struct idem_url_option options[] = {
    {"user", AT(user), idem_read_once, NULL},
    {"db", AT(db), idem_read_once, NULL},
    {"password_file", AT(password), idem_read_secret, NULL},
    {"name", AT(name), idem_read_text, NULL},
    {"connections", AT(connections_n), config_read_connections, NULL},
    {"connect_timeout", AT(connect_timeout_ms), idem_read_duration, NULL},
    {"timeout", AT(timeout_ms), idem_read_duration, NULL},
    {"pooled", AT(pooled), idem_read_flag, NULL},
    {"sweep", AT(sweep), idem_read_flag, NULL},
    {"tls", AT(tls), config_read_tls, NULL},
    {"tls_ca", AT(tls_ca), idem_read_text, NULL},
    {"tls_cert", AT(tls_cert), idem_read_text, NULL},
    {"tls_key", AT(tls_key), idem_read_text, NULL},
};

static int config_read_database(struct idem_reading *r, char *path) {
    if (path == NULL || *path == '\0')
        return 0;
    (void)idem_url_decode(path);
    return idem_read_text(r, NULL, path, &CONFIG(r)->db);
}

/* Either engine has sockets. */
static int config_check_socket(struct idem_reading *r) {
    (void)r;
    return 0;
}

/* Checks the options against each other. */
static int config_check(struct idem_reading *r) {
    struct sql_config *config = CONFIG(r);

    if (config->tls == SQL_TLS_UNSET)
        config->tls = config->tls_ca != NULL ? SQL_TLS_VERIFY : SQL_TLS_PREFER;
    if (config->hosts[0].port == 0 && config->tls > SQL_TLS_PREFER)
        return idem_reading_refuse(r, "a socket is without TLS");
    if (config->tls_ca != NULL && config->tls != SQL_TLS_VERIFY)
        return idem_reading_refuse(r, "tls_ca is of use with tls=verify only");
    if (config->db == NULL)
        return idem_reading_refuse(r, config->engine->form);
    return 0;
}

static const size_t texts[] = {AT(user),     AT(password), AT(db),  AT(tls_ca),
                               AT(tls_cert), AT(tls_key),  AT(name)};

static const struct idem_url_shape shape = {
    .socket = config_check_socket,
    .path = config_read_database,
    .check = config_check,
    IDEM_URL_FIELDS(struct sql_config),
};

int sql_config_read(const struct sql_engine *engine, const struct idem_url *url,
                    struct sql_config *ret, struct idem_error *err) {
    struct sql_config config = {.engine = engine,
                                .connect_timeout_ms = 5000,
                                .timeout_ms = 5000,
                                .connections_n = 4,
                                .sweep = true};
    struct idem_url_shape known = shape;
    int rc;

    known.form = engine->form;
    known.password = engine->password;
    known.port = engine->port;
    known.hosts_max = engine->hosts_max;
    rc = idem_read_url(url, &known, &config, err);
    if (rc == 0)
        *ret = config;
    return rc;
}

bool sql_config_copy(const struct sql_config *config, struct sql_config *ret) {
    *ret = *config;
    return idem_texts_copy(&shape, ret);
}

void sql_config_release(struct sql_config *config) {
    idem_texts_free(&shape, config);
}

#define END_MS 2000 /* limit for the end of the lost session */

/* State shared by the thread and the loop. */
struct connect_call {
    struct sql_config config;
    struct sql_session past;
    struct sql_dialled dialled;
};

static void connect_call_run(void *shared) {
    struct connect_call *call = shared;

    call->config.engine->dial(&call->config, &call->past, &call->dialled);
}

static void connect_call_release(void *shared) {
    struct connect_call *call = shared;

    if (call->dialled.connection != NULL)
        call->config.engine->hang_up(call->dialled.connection);
    sql_config_release(&call->config);
    free(call);
}

static struct connect_call *connect_call_new(const struct sql_config *config,
                                             const struct sql_session *past) {
    struct connect_call *call = calloc(1, sizeof(*call));

    if (call == NULL)
        return NULL;
    call->past = *past;
    if (sql_config_copy(config, &call->config))
        return call;
    free(call);
    return NULL;
}

bool sql_dial_begin(struct sql_dial *dial, struct idem_loop *loop, const struct sql_config *config,
                    const struct sql_session *past, void (*done)(void *data), void *data) {
    static const struct idem_offload_kind kind = {connect_call_run, connect_call_release};

    dial->call = connect_call_new(config, past);
    dial->offload =
        dial->call == NULL ? NULL : idem_offload_new(loop, &kind, dial->call, done, data);
    return dial->offload != NULL;
}

void sql_dial_cancel(struct sql_dial *dial) {
    idem_offload_free(dial->offload);
    dial->offload = NULL;
}

struct sql_dialled sql_dial_end(struct sql_dial *dial) {
    struct sql_dialled dialled = dial->call->dialled;

    dial->call->dialled.connection = NULL; /* now the caller owns it */
    sql_dial_cancel(dial);
    return dialled;
}

bool sql_dialled_fail(struct sql_dialled *ret, int code, bool for_good, const char *text) {
    size_t len;

    ret->code = code;
    ret->for_good = for_good;
    snprintf(ret->text, sizeof(ret->text), "%s", text);
    len = strlen(ret->text);
    while (len > 0 && ret->text[len - 1] == '\n')
        ret->text[--len] = '\0';
    for (char *at = ret->text; *at != '\0'; at++)
        if (*at == '\n' || *at == '\t')
            *at = ' ';
    return false;
}

/* By default libpq looks for authorities only in the user's home directory. */
const char *sql_authorities(const struct sql_config *config) {
    static const char debian[] = "/etc/ssl/certs/ca-certificates.crt";
    const char *environment = getenv(X509_get_default_cert_file_env());

    if (config->tls_ca != NULL)
        return config->tls_ca;
    if (environment != NULL)
        return environment;
    return access(debian, R_OK) == 0 ? debian : X509_get_default_cert_file();
}

bool sql_end_past(bool (*kill)(void *conn, const struct sql_session *past), void *conn,
                  const struct sql_session *past, struct sql_dialled *ret) {
    if (past->id == 0)
        return true;
    for (int ms = 0; ms < END_MS; ms += 10) {
        if (kill(conn, past))
            return true;
        usleep(10000);
    }
    return sql_dialled_fail(
        ret, IDEM_E_REFUSED, false,
        "the session that was lost is still there at the server, and could not be ended");
}

/* Replaces the descriptor by a socket whose peer is closed: TLS would treat a socket that was
   never connected as one that is not ready yet. */
void sql_fd_abandon(int fd) {
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0) {
        close(fd);
        return;
    }
    close(ends[1]);
    if (dup3(ends[0], fd, O_CLOEXEC) < 0)
        close(fd);
    close(ends[0]);
}
