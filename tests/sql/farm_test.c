/*
 * The servers that other tests rely on: each arrangement starts, answers, dies
 * and comes back.
 */
#include "../temp.h"
#include "../test.h"
#include "farm.h"

static struct farm farm;

static void begin(enum farm_kind kind, int clock_fd) {
    farm_start(&farm, kind, temp_folder(), clock_fd);
}

static bool says(const char *error, const char *part) {
    if (error != NULL && strstr(error, part) != NULL)
        return true;
    fprintf(stderr, "# it says: %s\n", error == NULL ? "nothing" : error);
    return false;
}

/* What a server must be to stand for its kind. */
static void lives(enum farm_kind kind) {
    begin(kind, -1);
    farm_sql(&farm, "CREATE TABLE t (a int)");
    CHECK(farm_try(&farm, FARM_APP, "INSERT INTO t VALUES (3)") == NULL);
    CHECK(farm_try(&farm, FARM_ODD, "UPDATE t SET a = a + 1; SELECT a FROM t") == NULL);
    CHECK_STR(farm.answer, "4");
    CHECK(says(farm_try(&farm, FARM_APP, "CREATE TABLE u (a int)"), "denied"));
    CHECK(says(farm_try(&farm, FARM_APP, "DROP TABLE t"),
               farm.server.engine == SERVER_POSTGRES ? "must be owner" : "denied"));
    CHECK(farm_try(&farm, FARM_OWNER, "CREATE TABLE u (a int)") == NULL);
    farm_kill(&farm);
    if (kind != FARM_PG_POOLED) /* a pooler lets its clients wait for a server */
        CHECK(farm_try(&farm, FARM_APP, "SELECT 1") != NULL);
    farm_restart(&farm);
    CHECK(farm_try(&farm, FARM_APP, "DELETE FROM t; SELECT 1") == NULL);
    farm_stop(&farm);
    CHECK(farm_try(&farm, FARM_APP, "SELECT 1") != NULL);
}

TEST(postgres_on_a_socket_lives) {
    lives(FARM_PG_SOCKET);
}

TEST(postgres_on_a_port_lives) {
    lives(FARM_PG_TCP);
}

TEST(postgres_with_tls_lives) {
    lives(FARM_PG_TLS);
}

TEST(postgres_behind_a_pooler_lives) {
    lives(FARM_PG_POOLED);
}

TEST(mariadb_on_a_socket_lives) {
    lives(FARM_MY_SOCKET);
}

TEST(mariadb_on_a_port_lives) {
    lives(FARM_MY_TCP);
}

TEST(mariadb_with_tls_lives) {
    lives(FARM_MY_TLS);
}

TEST_MAIN
