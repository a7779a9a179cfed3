/*
 * idem run on a server that dies: what it costs to wait for it.
 */
#include <sys/resource.h>

#include "../cli/harness.h"
#include "server.h"

static struct server server;

static const char *store_begin(void) {
    static const char *const args[] = {"--save", "", NULL};
    char folder[300];

    snprintf(folder, sizeof(folder), "%s/server", harness_folder());
    server_start(&server, folder, "redis-server", false, args, -1);
    return script("redis:%s?timeout=1s", server.socket);
}

/* Of the children that were waited for. */
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

/* The command kills the server, so that its own end cannot be stored. */
static void sleeps_while_it_is_tried(const char *mode) {
    const char *store = store_begin();
    long cpu = cpu_ms(), begun = now_ms();
    struct ran ran = RUN_SH(mode, script("kill -9 %d", (int)server.pid), "--store", store, "--mode",
                            mode, "--finish-timeout", "3s");

    CHECK(now_ms() - begun >= 2500);
    CHECK_HAS(ran.err, "unstored");
    CHECK(ran.status != 0);
    cpu = cpu_ms() - cpu;
    if (cpu >= 800)
        fprintf(stderr, "# %ld ms of CPU time in 3 s\n", cpu);
    CHECK(cpu < 800);
    server_stop(&server);
}

TEST(a_finish_that_is_tried_again_and_again_takes_no_cpu_time) {
    sleeps_while_it_is_tried("replay");
    sleeps_while_it_is_tried("reject");
}

TEST_MAIN
