/*
 * The PostgreSQL driver's table.
 */
#include "store/sql/postgres/postgres.h"
#include "store/sql/sql_store.h"

static void *driver_connect(const struct sql_config *config, struct sql_dialled *ret) {
    return pg_connect(config, ret);
}

static void driver_disconnect(void *conn) {
    PQfinish(conn);
}

const struct sql_engine sql_engine_postgres = {
    .name = "PostgreSQL",
    .password = "IDEM_POSTGRES_PASSWORD",
    .form = "written postgres://USER:PASSWORD@HOST:PORT/DATABASE, or "
            "postgres:/FOLDER?user=USER&db=DATABASE with the folder of its socket",
    .port = 5432,
    .hosts_max = SQL_HOSTS_MAX,
    .depth = 64,
    .notifies = true,
    .skips = true,
    .connect = driver_connect,
    .disconnect = driver_disconnect,
    .dial = pg_dial,
    .hang_up = pg_hang_up,
    .fd = pg_fd,
    .send = pg_send,
    .pump = pg_pump,
    .next = pg_next,
    .answer_free = pg_answer_free,
    .notified = pg_notified,
};

static const char *const schemes[] = {"postgres", "postgresql", NULL};

const struct idem_driver idem_driver_postgres = {
    .name = "postgres",
    .schemes = schemes,
    .engine = &sql_engine_postgres,
    SQL_DRIVER_SLOTS,
};
