/*
 * The MySQL driver's table.
 */
#include "store/mysql/mysql.h"
#include "store/sql/store.h"

static void *connect_raw(const struct sql_config *config, struct sql_dialled *ret) {
    return maria_connect(config, ret);
}

static void disconnect_raw(void *conn) {
    mysql_close(conn);
}

const struct sql_engine sql_engine_mysql = {
    .name = "MySQL",
    .password = "IDEM_MYSQL_PASSWORD",
    .form = "written mysql://USER:PASSWORD@HOST:PORT/DATABASE, or "
            "mysql:/SOCKET?user=USER&db=DATABASE",
    .port = 3306,
    .hosts_max = 1,
    .depth = 1,
    .connect = connect_raw,
    .disconnect = disconnect_raw,
    .dial = maria_dial,
    .hang_up = maria_hang_up,
    .fd = maria_fd,
    .send = maria_send,
    .pump = maria_pump,
    .next = maria_next,
    .answer_free = maria_answer_free,
};

static int mysql_url_check(const struct idem_url *url, struct idem_error *err) {
    return sql_check(&sql_engine_mysql, url, err);
}

static int mysql_url_open(const struct idem_url *url, struct idem_loop *loop,
                          const struct idem_clock *clock, struct idem_store **ret,
                          struct idem_error *err) {
    (void)clock; /* the server's own */
    return sql_open(&sql_engine_mysql, url, loop, ret, err);
}

static const char *const schemes[] = {"mysql", "mariadb", NULL};

const struct idem_driver idem_driver_mysql = {
    .name = "mysql",
    .schemes = schemes,
    .transactions = true,
    .check = mysql_url_check,
    .open = mysql_url_open,
    .close = sql_close,
    .submit = sql_submit,
    .cancel = sql_cancel,
    .watch = sql_watch,
    .unwatch = sql_unwatch,
    .tally = sql_tally,
};
