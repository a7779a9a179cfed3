/*
 * The stored result of a command.
 */
#include "test.h"

#include "cli/cli_result.h"

static void chunk_check(struct cli_reader *reader, int stream, const char *bytes, size_t len) {
    struct cli_chunk chunk;

    CHECK(cli_reader_next(reader, &chunk));
    CHECK_INT(chunk.stream, stream);
    CHECK_INT(chunk.len, len);
    CHECK(memcmp(chunk.bytes, bytes, len) == 0);
}

TEST(a_result_comes_back_in_order_byte_for_byte) {
    struct spawn_end end = {.signalled = false, .number = 255}, got;
    struct cli_reader reader;
    struct cli_result result;
    struct cli_chunk chunk;

    cli_result_init(&result, 100);
    cli_result_add(&result, 1, "a\0b", 3);
    cli_result_add(&result, 1, "c", 1);
    cli_result_add(&result, 2, "\xff", 1);
    cli_result_add(&result, 2, "", 0);
    cli_result_add(&result, 1, "d", 1);
    CHECK(cli_result_end(&result, &end));
    CHECK(cli_result_read(result.bytes.at, result.bytes.len, &got, &reader));
    CHECK(!got.signalled);
    CHECK_INT(got.number, 255);
    chunk_check(&reader, 1, "a\0bc", 4);
    chunk_check(&reader, 2, "\xff", 1);
    chunk_check(&reader, 1, "d", 1);
    CHECK(!cli_reader_next(&reader, &chunk));
    cli_result_release(&result);
}

TEST(an_empty_result_is_a_result) {
    struct spawn_end end = {.signalled = true, .number = SIGKILL}, got;
    struct cli_reader reader;
    struct cli_result result;
    struct cli_chunk chunk;

    cli_result_init(&result, 0);
    CHECK(cli_result_end(&result, &end));
    CHECK(cli_result_read(result.bytes.at, result.bytes.len, &got, &reader));
    CHECK_INT(spawn_end_status(&got), 137);
    CHECK(!cli_reader_next(&reader, &chunk));
    cli_result_release(&result);
}

TEST(output_is_kept_up_to_the_limit_and_not_at_all_beyond) {
    struct spawn_end end = {0};
    struct cli_result result;

    cli_result_init(&result, 4);
    cli_result_add(&result, 1, "abcd", 4);
    CHECK(cli_result_end(&result, &end));
    cli_result_add(&result, 2, "e", 1);
    CHECK(!cli_result_end(&result, &end));
    CHECK(result.bytes.at == NULL);
    cli_result_add(&result, 1, "", 0);
    cli_result_add(&result, 1, "a", 1);
    CHECK(!cli_result_end(&result, &end));
    cli_result_release(&result);
}

TEST(a_damaged_result_is_refused_whole) {
    static const unsigned char wrong[][12] = {
        {'R', 1, 0},                               /* 3: no header */
        {'S', 1, 0, 0},                            /* 4: another format */
        {'R', 2, 0, 0},                            /* 4: a newer version */
        {'R', 1, 2, 0},                            /* 4: no such end */
        {'R', 1, 1, 65},                           /* 4: no such signal */
        {'R', 1, 0, 0, 1, 0, 0, 0, 0},             /* 9: an empty chunk */
        {'R', 1, 0, 0, 3, 1, 0, 0, 0, 'x'},        /* 10: no such stream */
        {'R', 1, 0, 0, 1, 2, 0, 0, 0, 'x'},        /* 10: cut short */
        {'R', 1, 0, 0, 1, 1, 0, 0, 0, 'x', 'y'},   /* 11: bytes after the end */
        {'R', 1, 0, 0, 1, 0xff, 0xff, 0xff, 0xff}, /* 9: longer than the data */
    };
    static const size_t lens[] = {3, 4, 4, 4, 4, 9, 10, 10, 11, 9};
    struct cli_reader reader;
    struct spawn_end end;

    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
        CHECK(!cli_result_read(wrong[i], lens[i], &end, &reader));
    CHECK(!cli_result_read("", 0, &end, &reader));
}

TEST_MAIN
