/*
 * Writes the protocol's two tables as Promela, for tests/model/idem.pml.
 *
 *     promela          the constants, claim_decide() and finish_decide()
 *     promela --rows   the rows, one a line: "claim 4: running under this very owner id..."
 *
 * claim_decide() reads `state` and `facts` and sets `verdict` and `move`;
 * finish_decide() reads `action` as well and sets `ack` and `move`. Both call
 * row_matched(table, number) in C, so that a run can tell which rows it met.
 *
 * The model is checked against what the C code does because both read the same
 * rows; nothing of them is written by hand a second time. Fails (1) when a rule
 * names a fact, state or verdict that has no word here, or when stdout cannot
 * be written: a model with a hole in it must not be checked.
 */
#include "protocol/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATE__COUNT 5
#define VERDICT__COUNT 10

static const char *const state_words[STATE__COUNT] = {
    [IDEM_ABSENT] = "ABSENT", [IDEM_ISSUED] = "ISSUED", [IDEM_RUNNING] = "RUNNING",
    [IDEM_DONE] = "DONE",     [IDEM_FAILED] = "FAILED",
};

static const char *const verdict_words[VERDICT__COUNT] = {
    [IDEM_RUN] = "RUN",   [IDEM_REPLAY] = "REPLAY",     [IDEM_DUPLICATE] = "DUPLICATE",
    [IDEM_BUSY] = "BUSY", [IDEM_MISMATCH] = "MISMATCH", [IDEM_UNCERTAIN] = "UNCERTAIN",
    [IDEM_DEAD] = "DEAD", [IDEM_NO_TOKEN] = "NO_TOKEN", [IDEM_PROBE] = "PROBE",
};

static _Noreturn void die(const char *what) {
    fprintf(stderr, "promela: %s\n", what);
    exit(1);
}

/* "attempts_left" becomes "ATTEMPTS_LEFT"; names of the tables are plain ASCII. */
static const char *upper(const char *name) {
    static char buf[4][32];
    static unsigned turn;
    char *out = buf[turn++ % 4];
    size_t len = strlen(name);

    if (len >= sizeof(buf[0]) || strcmp(name, "?") == 0)
        die("a rule uses a word that the tables do not name");
    for (size_t i = 0; i <= len; i++)
        out[i] = (char)(name[i] >= 'a' && name[i] <= 'z' ? name[i] - 'a' + 'A' : name[i]);
    return out;
}

static void print_constants(void) {
    for (unsigned i = 0; i < STATE__COUNT; i++)
        printf("#define S_%s %u\n", state_words[i], i);
    for (unsigned i = 1; i < VERDICT__COUNT; i++)
        printf("#define V_%s %u\n", verdict_words[i], i);
    for (unsigned i = 0; i < IDEM_FACT__COUNT; i++)
        printf("#define F_%s %u\n", upper(idem_fact_name(1u << i)), 1u << i);
    for (unsigned i = 0; i < IDEM_MOVE__COUNT; i++)
        printf("#define M_%s %u\n", upper(idem_move_name((enum idem_move)i)), i);
    for (unsigned i = 0; i < IDEM_OWNER_ACTION__COUNT; i++)
        printf("#define OWNER_%s %u\n", upper(idem_owner_action_name((enum idem_owner_action)i)),
               i);
    printf("#define ACK %d\n#define LOST %d\n", IDEM_ACK, IDEM_LOST);
}

static void print_states(unsigned states) {
    const char *sep = "(";

    if ((states & ~IDEM_IN_ANY) != 0 || states == 0)
        die("a rule has a state that is unknown here, or none");
    for (unsigned i = 0; i < STATE__COUNT; i++) {
        if ((states & IDEM_IN(i)) == 0)
            continue;
        printf("%sstate == S_%s", sep, state_words[i]);
        sep = " || ";
    }
    printf(")");
}

static void print_facts(unsigned facts, const char *relation) {
    if ((facts >> IDEM_FACT__COUNT) != 0)
        die("a rule has a fact that is unknown here");
    for (unsigned i = 0; i < IDEM_FACT__COUNT; i++)
        if ((facts & (1u << i)) != 0)
            printf(" && (facts & F_%s) %s 0", upper(idem_fact_name(1u << i)), relation);
}

static void print_actions(unsigned actions) {
    const char *sep = " && (";

    if (actions == 0 || (actions >> IDEM_OWNER_ACTION__COUNT) != 0)
        die("a rule has a word of the owner that is unknown here, or none");
    if (actions == (1u << IDEM_OWNER_ACTION__COUNT) - 1)
        return;
    for (unsigned i = 0; i < IDEM_OWNER_ACTION__COUNT; i++) {
        if ((actions & (1u << i)) == 0)
            continue;
        printf("%saction == OWNER_%s", sep,
               upper(idem_owner_action_name((enum idem_owner_action)i)));
        sep = " || ";
    }
    printf(")");
}

/* The name of a rule ends up in a string of Promela's, and in a line of its own. */
static const char *plain(const char *when) {
    if (strpbrk(when, "\n\"\\%") != NULL)
        die("a rule's name has a character that would need quoting");
    return when;
}

/* Said when a counterexample is told again; the verifier itself is silent. */
static void print_answer(const char *when, const char *answer) {
    printf("    printf(\"%s: %s\\n\");\n", plain(when), answer);
}

/* First match decides: each rule is an option, and the rest of the table its else. */
static void print_claim_table(void) {
    const struct idem_claim_rule *rule;
    int n = 0;

    printf("\ninline claim_decide() {\n");
    for (rule = idem_claim_table; rule->when != NULL; rule++, n++) {
        if ((unsigned)rule->verdict >= VERDICT__COUNT || verdict_words[rule->verdict] == NULL)
            die("a rule has a verdict that is unknown here");
        printf("if\n:: ");
        print_states(rule->states);
        print_facts(rule->yes, "!=");
        print_facts(rule->no, "==");
        printf(" ->\n    c_code { row_matched(\"claim\", %d); };\n", n);
        print_answer(rule->when, verdict_words[rule->verdict]);
        printf("    verdict = V_%s; move = M_%s\n:: else ->\n", verdict_words[rule->verdict],
               upper(idem_move_name(rule->move)));
    }
    printf("    assert(false) /* no rule matches */\n");
    while (n-- > 0)
        printf("fi%s", n % 16 == 0 ? "\n" : " ");
    printf("}\n");
}

static void print_finish_table(void) {
    const struct idem_finish_rule *rule;
    int n = 0;

    printf("\ninline finish_decide() {\n");
    for (rule = idem_finish_table; rule->when != NULL; rule++, n++) {
        printf("if\n:: ");
        print_states(rule->states);
        print_actions(rule->actions);
        print_facts(rule->yes, "!=");
        print_facts(rule->no, "==");
        printf(" ->\n    c_code { row_matched(\"finish\", %d); };\n", n);
        print_answer(rule->when, rule->ack == IDEM_ACK ? "ACK" : "LOST");
        printf("    ack = %s; move = M_%s\n:: else ->\n", rule->ack == IDEM_ACK ? "ACK" : "LOST",
               upper(idem_move_name(rule->move)));
    }
    printf("    assert(false) /* no rule matches */\n");
    while (n-- > 0)
        printf("fi%s", n % 16 == 0 ? "\n" : " ");
    printf("}\n");
}

static void print_rows(void) {
    const struct idem_claim_rule *claim = idem_claim_table;
    const struct idem_finish_rule *finish = idem_finish_table;

    for (int n = 0; claim->when != NULL; claim++, n++)
        printf("claim %d: %s\n", n, plain(claim->when));
    for (int n = 0; finish->when != NULL; finish++, n++)
        printf("finish %d: %s\n", n, plain(finish->when));
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--rows") == 0) {
        print_rows();
    } else if (argc == 1) {
        printf("/* Made by tools/promela.c from src/protocol/table.c: do not edit. */\n");
        print_constants();
        print_claim_table();
        print_finish_table();
    } else {
        die("usage: promela [--rows]");
    }
    return fflush(stdout) != 0 || ferror(stdout) ? 1 : 0;
}
