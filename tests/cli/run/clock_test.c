/* The store's two times, and which of them `idem run` uses. */
#include "cli/harness.h"

#include "store/lmdb/rig.h"

#define AHEAD_MS ((int64_t)5 * 3600 * 1000)

static int64_t clock_ms(clockid_t id) {
    struct timespec ts;

    CHECK(clock_gettime(id, &ts) == 0);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int64_t machine_lease(void *data) {
    (void)data;
    return clock_ms(CLOCK_BOOTTIME);
}

static int64_t wall_ahead(void *data) {
    (void)data;
    return clock_ms(CLOCK_REALTIME) + AHEAD_MS;
}

/* Makes a store that was written to while this machine's date was ahead; the date is right
 * again. */
static void store_from_ahead(void) {
    static const struct idem_clock clock = {machine_lease, wall_ahead, NULL};
    struct rig rig;

    harness_folder();
    rig_open(&rig, getenv("IDEM_STORE"), &clock);
    rig_once(&rig, "x", "x", 1);
    rig_close(&rig);
}

/* How far ahead of the date a printed time is. */
static int64_t ahead_ms(const char *text) {
    struct tm tm = {0};

    CHECK(text != NULL && strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) != NULL);
    return 1000 * (int64_t)timegm(&tm) - clock_ms(CLOCK_REALTIME);
}

TEST(a_schedule_goes_by_the_date_although_the_store_has_seen_a_later_one) {
    struct ran ran;
    int64_t by;

    store_from_ahead();
    ran = RUN_SH("k", "echo $IDEM_AT", "--at", "1h");
    CHECK_INT(ran.status, 0);
    by = ahead_ms(ran.out);
    CHECK(by > -3700 * 1000 && by <= 30 * 1000);
    /* Expiry follows the later time, so the record was not removed. */
    ran = RUN("list", "--json", "--prefix", "run:");
    CHECK_HAS(ran.out, "\"changed\":\"");
    CHECK(ahead_ms(strstr(ran.out, "\"changed\":\"") + 11) > AHEAD_MS - 3600 * 1000);
}

TEST_MAIN
