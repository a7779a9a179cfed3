/*
 * The MySQL driver's table.
 */
#include "store/sql/mysql/mysql.h"
#include "store/sql/sql_store.h"

static void *driver_connect(const struct sql_config *config, struct sql_dialled *ret) {
    return maria_connect(config, ret);
}

static void driver_disconnect(void *conn) {
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
    .connect = driver_connect,
    .disconnect = driver_disconnect,
    .dial = maria_dial,
    .hang_up = maria_hang_up,
    .fd = maria_fd,
    .send = maria_send,
    .pump = maria_pump,
    .next = maria_next,
    .answer_free = maria_answer_free,
};

static const char *const schemes[] = {"mysql", "mariadb", NULL};

const struct idem_driver idem_driver_mysql = {
    .name = "mysql",
    .schemes = schemes,
    .engine = &sql_engine_mysql,
    SQL_DRIVER_SLOTS,
};
