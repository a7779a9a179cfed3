/*
 * The log of a history: what is read of it, what is refused, what a report shows
 * of it, and how it is written.
 */
#include "judged.h"
#include "temp.h"

TEST(keys_are_judged_apart) {
    policy(HOLD);
    claimed(10, 20, "a", "run attempt=1");
    at(30, "pb other claim owner=b");
    at(40, "pb other claimed owner=b verdict=run attempt=1");
    passes();
    CHECK_INT(sum.keys, 2);
}

TEST(a_claim_may_bring_its_own_policy) {
    policy(HOLD);
    at(10, "pa k claim owner=a mode=lock");
    at(20, "pa k claimed owner=a verdict=run attempt=1");
    finished(30, 40, "a", "done", "ack");
    at(50, "pb k claim owner=b mode=lock");
    at(60, "pb k claimed owner=b verdict=run attempt=2");
    passes();
}

TEST(torn_lines_are_left_out) {
    policy(HOLD);
    claimed(10, 20, "a", "run attempt=1");
    raw("30000000 pa k finish owner=a said=rel\n");
    raw("\n# a remark\n");
    raw("31000000 pb k cla32000000 pc k claim own\n");
    raw("3300");
    passes();
    CHECK_INT(sum.torn, 3);
}

TEST(a_torn_word_counts_for_nothing) {
    policy(HOLD);
    claimed(10, 20, "a", "run attempt=1");
    raw("30000000 pa k finish owner=a said=release\n");
    claimed(1100, 1110, "b", "run attempt=2");
    caught(3, 3, 6);
}

static void refused(const char *why) {
    CHECK_INT(judged(), -1);
    CHECK_HAS(report, why);
}

TEST(a_log_that_makes_no_sense_is_refused) {
    policy(HOLD);
    at(10, "pa k claimed owner=a verdict=run");
    refused("line 2: answers what nobody asked");
    policy(HOLD);
    at(10, "pa k clam owner=a");
    refused("line 2: is not an event: clam");
    policy(HOLD);
    at(10, "pa k claim owner=a atempt=1");
    refused("line 2: has a name or a value that is unknown: atempt");
    policy(HOLD);
    at(10, "pa k claim");
    refused("line 2: lacks: owner=");
    policy(HOLD);
    raw("soon pa k claim owner=a .\n");
    refused("line 2: is not a time: soon");
    policy("mode=replay");
    at(10, "pa k claim owner=a");
    refused("line 2: claims without mode= and recover=");
}

TEST(a_piece_shows_the_lines_of_its_key_with_their_numbers) {
    policy(HOLD);
    for (int i = 0; i < 5; i++)
        at(i, "px other claim owner=x%d", i);
    claimed(10, 20, "a", "run attempt=1");
    at(30, "px other claim owner=x9");
    claimed(5000, 5010, "b", "run attempt=2");
    caught(3, 8, 11);
    CHECK_HAS(report, "    7: 10000000 pa k claim owner=a .\n"
                      "  > 8: 20000000 pa k claimed owner=a verdict=run attempt=1 .\n"
                      "    10: 5000000000 pb k claim owner=b .\n"
                      "  > 11: ");
    CHECK(strstr(report, "other") == NULL);
}

TEST(what_is_written_is_what_is_read) {
    const char *path = temp_file("history");
    int fd = history_open(path);
    size_t size;
    FILE *out = open_memstream(&report, &size);

    CHECK(fd >= 0 && out != NULL);
    CHECK_INT(history_write(fd, "*", "policy", "%s", RERUN), 0);
    CHECK_INT(history_write(fd, "k", "claim", "owner=%s", "a"), 0);
    CHECK_INT(history_write(fd, "k", "claimed", "owner=a verdict=run attempt=%d", 1), 0);
    CHECK_INT(history_write_as(fd, "me", "k", "claim", "owner=b"), 0);
    CHECK_INT(history_write_as(fd, "me", "k", "claimed", "owner=b verdict=run attempt=2"), 0);
    CHECK_INT(history_write(fd, "k", "crash", "%s", ""), 0);
    CHECK_INT(history_check_file(path, out, &sum), 1);
    fclose(out);
    CHECK_HAS(report, "invariant 1");
    CHECK_INT(sum.lines, 6);
    close(fd);
}

TEST(many_writers_share_one_log) {
    const char *path = temp_file("history");
    int fd = history_open(path), status;

    CHECK(fd >= 0);
    CHECK_INT(history_write(fd, "*", "policy", "%s", LOCK), 0);
    for (int p = 0; p < 4; p++)
        if (fork() == 0) {
            int own = history_open(path);

            for (int i = 0; i < 500; i++)
                if (history_write(own, "k", "claim", "owner=o%d-%d", p, i) < 0 ||
                    history_write(own, "k", "claimed", "owner=o%d-%d verdict=busy", p, i) < 0)
                    _exit(1);
            _exit(0);
        }
    for (int p = 0; p < 4; p++)
        CHECK(wait(&status) > 0 && status == 0);
    CHECK_INT(history_check_file(path, stderr, &sum), 0);
    CHECK_INT(sum.torn, 0);
    CHECK_INT(sum.claims, 2000);
    close(fd);
}

TEST(a_long_history_of_one_key_is_judged_soon) {
    const char *path = temp_file("history");
    FILE *log = fopen(path, "w");

    CHECK(log != NULL);
    fprintf(log, "0 - * policy mode=lock lease_ms=1000 .\n");
    for (int i = 1; i <= 20000; i++) {
        fprintf(log, "%d0000000 p k claim owner=o%d .\n", i, i);
        fprintf(log, "%d1000000 p k claimed owner=o%d verdict=run attempt=%d .\n", i, i, i);
        fprintf(log, "%d2000000 p k finish owner=o%d said=done .\n", i, i);
        fprintf(log, "%d3000000 p k finished owner=o%d said=done ack=ack .\n", i, i);
    }
    CHECK_INT(fclose(log), 0);
    CHECK_INT(history_check_file(path, stderr, &sum), 0);
    CHECK_INT(sum.runs, 20000);
}

TEST_MAIN
