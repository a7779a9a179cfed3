/*
 * The scripts: parts of protocol.lua, with the rows of the protocol's two tables
 * written out as conditions. The tables themselves are core/table.c's, so that
 * the server decides by the same rows as everybody else. Fails only without
 * memory.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "store/redis/redis.h"

/* Written by the build: protocol.lua as a string. */
static const char protocol[] =
#include "protocol.lua.h"
    ;

static const char *const parts[REDIS_SCRIPT__COUNT][6] = {
    [REDIS_SCRIPT_CLAIM] = {"begin", "head", "times", "claim"},
    [REDIS_SCRIPT_FINISH] = {"begin", "straight", "head", "times", "finish"},
    [REDIS_SCRIPT_ISSUE] = {"begin", "head", "issue"},
    [REDIS_SCRIPT_COUNT] = {"count"},
    [REDIS_SCRIPT_LOOK] = {"look"},
    [REDIS_SCRIPT_SETTLE] = {"begin", "head", "times", "settle"},
    [REDIS_SCRIPT_FORGET] = {"begin", "head", "times", "forget"},
};

/* Rows as conditions. */

static void put_list(FILE *out, const char *name, unsigned mask) {
    const char * or = "";

    fputs("(", out);
    for (unsigned i = 0; i < 8; i++) {
        if ((mask & 1u << i) == 0)
            continue;
        fprintf(out, "%s%s == %u", or, name, i);
        or = " or ";
    }
    fputs(")", out);
}

static void put_facts(FILE *out, unsigned yes, unsigned no) {
    if (yes != 0)
        fprintf(out, " and band(facts, %u) == %u", yes, yes);
    if (no != 0)
        fprintf(out, " and band(facts, %u) == 0", no);
}

static void put_claim_rows(FILE *out) {
    for (const struct idem_claim_row *row = idem_claim_table; row->when != NULL; row++) {
        fputs(row == idem_claim_table ? "if " : "elseif ", out);
        put_list(out, "state", row->states);
        put_facts(out, row->yes, row->no);
        fprintf(out, " then verdict, move = %d, %d\n", (int)row->verdict, (int)row->move);
    }
    fputs("end\n", out);
}

static void put_finish_rows(FILE *out) {
    for (const struct idem_finish_row *row = idem_finish_table; row->when != NULL; row++) {
        fputs(row == idem_finish_table ? "if " : "elseif ", out);
        put_list(out, "said", row->said);
        fputs(" and ", out);
        put_list(out, "state", row->states);
        put_facts(out, row->yes, row->no);
        fprintf(out, " then ack, move = %d, %d\n", (int)row->ack, (int)row->move);
    }
    fputs("end\n", out);
}

/* Parts. */

/* Where a part begins, behind its line; and its length. */
static const char *part_find(const char *name, size_t *ret_len) {
    const char *at = protocol, *end;
    size_t len = strlen(name);

    while ((at = strstr(at, "--@ ")) != NULL) {
        at += 4;
        if (strncmp(at, name, len) == 0 && at[len] == '\n')
            break;
    }
    if (at == NULL)
        abort();
    at += len + 1;
    end = strstr(at, "--@ ");
    *ret_len = end == NULL ? strlen(at) : (size_t)(end - at);
    return at;
}

static void put_line(FILE *out, enum redis_script script, const char *line, size_t len,
                     const char *publish) {
    static const char hole[] = "PUBLISH_";
    const char *found;

    if (len == 5 && memcmp(line, "ROWS\n", 5) == 0) {
        if (script == REDIS_SCRIPT_CLAIM)
            put_claim_rows(out);
        else
            put_finish_rows(out);
        return;
    }
    found = memmem(line, len, hole, sizeof(hole) - 1);
    if (found != NULL) {
        fwrite(line, 1, (size_t)(found - line), out);
        fputs(publish, out);
        len -= (size_t)(found - line) + sizeof(hole) - 1;
        line = found + sizeof(hole) - 1;
    }
    fwrite(line, 1, len, out);
}

static void put_part(FILE *out, enum redis_script script, const char *name, const char *publish) {
    size_t len, n;
    const char *at = part_find(name, &len), *newline;

    for (; len > 0; at += n, len -= n) {
        newline = memchr(at, '\n', len);
        n = newline == NULL ? len : (size_t)(newline - at) + 1;
        put_line(out, script, at, n, publish);
    }
}

static char *script_make(enum redis_script script, const char *publish) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (out == NULL)
        return NULL;
    for (size_t i = 0; parts[script][i] != NULL; i++)
        put_part(out, script, parts[script][i], publish);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

/* The name by which the server knows it. */
static void sha_make(const char *text, char out[41]) {
    unsigned char hash[SHA_DIGEST_LENGTH];

    SHA1((const unsigned char *)text, strlen(text), hash);
    for (size_t i = 0; i < sizeof(hash); i++)
        snprintf(out + 2 * i, 3, "%02x", hash[i]);
}

int redis_scripts_make(const char *publish, struct redis_scripts *ret, struct idem_error *err) {
    struct redis_scripts made = {0};

    for (int i = 0; i < REDIS_SCRIPT__COUNT; i++) {
        made.text[i] = script_make((enum redis_script)i, publish);
        if (made.text[i] == NULL) {
            redis_scripts_release(&made);
            return idem_error_set(err, IDEM_E_NOMEM, "no memory for the scripts");
        }
        sha_make(made.text[i], made.sha[i]);
    }
    *ret = made;
    return 0;
}

void redis_scripts_release(struct redis_scripts *scripts) {
    for (int i = 0; i < REDIS_SCRIPT__COUNT; i++)
        free(scripts->text[i]);
    *scripts = (struct redis_scripts){0};
}
