/*
 * The two tables: no case is left open, no row is dead, and docs/protocol.md
 * shows them as they are. `protocol-table-test --print` writes the part of that page.
 */
#include "protocol/table.h"

#include "test.h"

static const char *state_names(unsigned states, char *buf, size_t size) {
    size_t len = 0;

    buf[0] = '\0';
    for (unsigned s = IDEM_ABSENT; s <= IDEM_FAILED; s++)
        if (states & IDEM_IN(s))
            len += (size_t)snprintf(buf + len, size - len, "%s%s", len == 0 ? "" : ", ",
                                    idem_state_name(s));
    return buf;
}

static const char *fact_names(unsigned yes, unsigned no, char *buf, size_t size) {
    size_t len = 0;

    buf[0] = '\0';
    for (unsigned i = 0; i < IDEM_FACT__COUNT; i++) {
        unsigned fact = 1u << i;

        if ((yes | no) & fact)
            len += (size_t)snprintf(buf + len, size - len, "%s%s%s", len == 0 ? "" : ", ",
                                    no & fact ? "not " : "", idem_fact_name(fact));
    }
    return buf;
}

static void print_tables(FILE *out) {
    const struct idem_claim_rule *c;
    const struct idem_finish_rule *f;
    char states[128], facts[256];

    fputs("| a claim meets | state | facts | verdict | move |\n|---|---|---|---|---|\n", out);
    for (c = idem_claim_table; c->when != NULL; c++)
        fprintf(out, "| %s | %s | %s | %s | %s |\n", c->when,
                state_names(c->states, states, sizeof(states)),
                fact_names(c->yes, c->no, facts, sizeof(facts)), idem_verdict_name(c->verdict),
                idem_move_name(c->move));
    fputs("\n| the owner says | state | facts | answer | move |\n|---|---|---|---|---|\n", out);
    for (f = idem_finish_table; f->when != NULL; f++)
        fprintf(out, "| %s | %s | %s | %s | %s |\n", f->when,
                state_names(f->states, states, sizeof(states)),
                fact_names(f->yes, f->no, facts, sizeof(facts)),
                f->ack == IDEM_ACK ? "acknowledged" : "lost", idem_move_name(f->move));
}

TEST(every_claim_is_decided_by_some_row) {
    for (unsigned state = IDEM_ABSENT; state <= IDEM_FAILED; state++)
        for (unsigned facts = 0; facts < 1u << IDEM_FACT__COUNT; facts++)
            CHECK(idem_claim_rule_find(state, facts) != NULL);
}

TEST(every_finish_is_decided_by_some_row) {
    for (unsigned action = 0; action < IDEM_OWNER_ACTION__COUNT; action++)
        for (unsigned state = IDEM_ABSENT; state <= IDEM_FAILED; state++)
            for (unsigned facts = 0; facts < 1u << IDEM_FACT__COUNT; facts++)
                CHECK(idem_finish_rule_find(action, state, facts) != NULL);
}

TEST(every_row_decides_something) {
    unsigned claims = 0, finishes = 0, rows = 0;

    for (unsigned state = IDEM_ABSENT; state <= IDEM_FAILED; state++) {
        for (unsigned facts = 0; facts < 1u << IDEM_FACT__COUNT; facts++) {
            claims |= 1u << (idem_claim_rule_find(state, facts) - idem_claim_table);
            for (unsigned action = 0; action < IDEM_OWNER_ACTION__COUNT; action++)
                finishes |= 1u << (idem_finish_rule_find(action, state, facts) - idem_finish_table);
        }
    }
    while (idem_claim_table[rows].when != NULL)
        rows++;
    CHECK_INT(claims, (1u << rows) - 1);
    for (rows = 0; idem_finish_table[rows].when != NULL;)
        rows++;
    CHECK_INT(finishes, (1u << rows) - 1);
}

TEST(only_the_owner_changes_a_running_record) {
    for (unsigned action = 0; action < IDEM_OWNER_ACTION__COUNT; action++)
        for (unsigned facts = 0; facts < 1u << IDEM_FACT__COUNT; facts++)
            if ((facts & IDEM_FACT_MINE) == 0)
                CHECK_INT(idem_finish_rule_find(action, IDEM_RUNNING, facts)->move, IDEM_MOVE_NONE);
}

TEST(nothing_runs_that_is_done_and_no_lock) {
    for (unsigned facts = 0; facts < 1u << IDEM_FACT__COUNT; facts++)
        if ((facts & IDEM_FACT_LOCK) == 0)
            CHECK(idem_claim_rule_find(IDEM_DONE, facts)->verdict != IDEM_RUN);
}

TEST(a_live_lease_is_never_taken_over) {
    for (unsigned facts = 0; facts < 1u << IDEM_FACT__COUNT; facts++)
        if (facts & IDEM_FACT_LIVE)
            CHECK_INT(idem_claim_rule_find(IDEM_RUNNING, facts)->move, IDEM_MOVE_NONE);
}

TEST(another_fingerprint_never_runs_and_sees_nothing) {
    for (unsigned state = IDEM_RUNNING; state <= IDEM_FAILED; state++) {
        for (unsigned facts = 0; facts < 1u << IDEM_FACT__COUNT; facts++) {
            enum idem_verdict verdict = idem_claim_rule_find(state, facts)->verdict;

            if ((facts & IDEM_FACT_DIFFERS) == 0 ||
                (state == IDEM_RUNNING && (facts & IDEM_FACT_MINE)))
                continue;
            CHECK(verdict == IDEM_MISMATCH || verdict == IDEM_NO_TOKEN);
        }
    }
}

TEST(the_documented_tables_are_the_real_ones) {
    char *page = NULL, *want = NULL;
    size_t page_len, want_len;
    FILE *file = fopen(IDEM_SOURCE "/docs/protocol.md", "r");
    FILE *mem = open_memstream(&want, &want_len);

    CHECK(mem != NULL);
    print_tables(mem);
    fclose(mem);
    CHECK(file != NULL);
    mem = open_memstream(&page, &page_len);
    for (int c; (c = fgetc(file)) != EOF;)
        fputc(c, mem);
    fclose(mem);
    fclose(file);
    CHECK(strstr(page, want) != NULL);
    free(page);
    free(want);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--print") == 0) {
        print_tables(stdout);
        return 0;
    }
    return test_main(argc, argv);
}
