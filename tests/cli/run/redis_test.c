/* idem run on a server that dies: the CPU time of waiting for it. */
#include <sys/resource.h>

#include "cli/harness.h"
#include "store/redis/server.h"

static struct server server;

static const char *store_begin(void) {
    static const char *const args[] = {"--save", "", NULL};
    char folder[300];

    snprintf(folder, sizeof(folder), "%s/server", harness_folder());
    server_start(&server, folder, "redis-server", false, args, -1);
    return script("redis:%s?timeout=12s", server.socket);
}

/* The CPU time of all children that have ended. */
static long cpu_ms(void) {
    struct rusage usage;

    CHECK(getrusage(RUSAGE_CHILDREN, &usage) == 0);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

static long now_ms(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The command kills the server, so that its own outcome cannot be stored. Starting takes some
 * CPU time, and more of it on a busy machine. A tenth of the elapsed time is more than that, and
 * much less than a loop without sleep uses even on a busy machine. */
static void sleeps_while_it_is_tried(const char *mode) {
    const char *store = store_begin();
    long cpu = cpu_ms(), begun = now_ms();
    struct ran ran = RUN_SH(mode, script("kill -9 %d", (int)server.pid), "--store", store, "--mode",
                            mode, "--finish-timeout", "30s");

    long took = now_ms() - begun;

    CHECK(took >= 29500);
    CHECK_HAS(ran.err, "unstored");
    CHECK(ran.status != 0);
    cpu = cpu_ms() - cpu;
    fprintf(stderr, "# %ld ms of CPU time in %ld ms\n", cpu, took);
    CHECK(cpu < took / 10);
    server_stop(&server);
}

TEST(a_finish_that_is_tried_again_and_again_takes_no_cpu_time) {
    sleeps_while_it_is_tried("replay");
}

TEST(a_finish_without_a_result_that_is_tried_again_and_again_takes_no_cpu_time) {
    sleeps_while_it_is_tried("reject");
}

int main(int argc, char **argv) {
    test_at_a_time = 2;
    return test_main(argc, argv);
}
