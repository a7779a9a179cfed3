/* The states of a guarded request and of its response: which moves are allowed, and that no
 * others are. */
#include "nginx/ngx_http_idem_state.h"

#include "test.h"

/* From each state, the states that may follow, in the order of the enum; PASSED follows every
 * state. */
static const char *const moves[NGX_HTTP_IDEM_STATES] = {
    [NGX_HTTP_IDEM_START] = "reading claiming passed",
    [NGX_HTTP_IDEM_READING] = "signing claiming answered passed",
    [NGX_HTTP_IDEM_SIGNING] = "claiming answered passed",
    [NGX_HTTP_IDEM_CLAIMING] = "answered passed",
    [NGX_HTTP_IDEM_ANSWERED] = "claiming probing settling running passed",
    [NGX_HTTP_IDEM_PROBING] = "probed passed",
    [NGX_HTTP_IDEM_PROBED] = "answered settling passed",
    [NGX_HTTP_IDEM_SETTLING] = "answered passed",
    [NGX_HTTP_IDEM_RUNNING] = "storing ready sent passed",
    [NGX_HTTP_IDEM_STORING] = "ready passed",
    [NGX_HTTP_IDEM_READY] = "sent passed",
    [NGX_HTTP_IDEM_SENT] = "passed",
    [NGX_HTTP_IDEM_PASSED] = "",
};

static const char *const arrived[NGX_HTTP_IDEM_ARRIVED] = {
    [NGX_HTTP_IDEM_SILENT] = "head",
    [NGX_HTTP_IDEM_HEAD] = "silent whole cut",
    [NGX_HTTP_IDEM_WHOLE] = "silent",
    [NGX_HTTP_IDEM_CUT] = "",
};

static void add(char *text, size_t size, const char *word) {
    size_t len = strlen(text);

    snprintf(text + len, size - len, "%s%s", len ? " " : "", word);
}

TEST(a_request_moves_as_drawn_and_no_other_way) {
    for (int from = 0; from < NGX_HTTP_IDEM_STATES; from++) {
        char found[256] = "";

        for (int to = 0; to < NGX_HTTP_IDEM_STATES; to++)
            if (to != from && ngx_http_idem_state_allows(from, to))
                add(found, sizeof(found), ngx_http_idem_state_name(to));
        CHECK_STR(found, moves[from]);
    }
}

TEST(a_response_moves_as_drawn_and_no_other_way) {
    for (int from = 0; from < NGX_HTTP_IDEM_ARRIVED; from++) {
        char found[256] = "";

        for (int to = 0; to < NGX_HTTP_IDEM_ARRIVED; to++)
            if (to != from && ngx_http_idem_state_allows_arrived(from, to))
                add(found, sizeof(found), ngx_http_idem_state_arrived_name(to));
        CHECK_STR(found, arrived[from]);
    }
}

TEST(a_state_may_be_set_again) {
    for (int state = 0; state < NGX_HTTP_IDEM_STATES; state++)
        CHECK(ngx_http_idem_state_allows(state, state));
    for (int state = 0; state < NGX_HTTP_IDEM_ARRIVED; state++)
        CHECK(ngx_http_idem_state_allows_arrived(state, state));
}

TEST(every_state_is_reached_from_start_and_ends_in_passed) {
    bool reached[NGX_HTTP_IDEM_STATES] = {[NGX_HTTP_IDEM_START] = true};

    for (int round = 0; round < NGX_HTTP_IDEM_STATES; round++)
        for (int from = 0; from < NGX_HTTP_IDEM_STATES; from++)
            for (int to = 0; to < NGX_HTTP_IDEM_STATES; to++)
                if (reached[from] && ngx_http_idem_state_allows(from, to))
                    reached[to] = true;
    for (int state = 0; state < NGX_HTTP_IDEM_STATES; state++) {
        CHECK(reached[state]);
        CHECK(ngx_http_idem_state_allows(state, NGX_HTTP_IDEM_PASSED));
    }
}

/* No byte goes out while the store is asked to confirm, and no state leads back to a run. */
TEST(a_response_is_sent_from_running_or_ready_only_and_a_run_does_not_begin_twice) {
    for (int from = 0; from < NGX_HTTP_IDEM_STATES; from++) {
        if (ngx_http_idem_state_allows(from, NGX_HTTP_IDEM_SENT))
            CHECK(from == NGX_HTTP_IDEM_RUNNING || from == NGX_HTTP_IDEM_READY ||
                  from == NGX_HTTP_IDEM_SENT);
        if (from > NGX_HTTP_IDEM_RUNNING)
            CHECK(!ngx_http_idem_state_allows(from, NGX_HTTP_IDEM_RUNNING));
    }
}

TEST_MAIN
