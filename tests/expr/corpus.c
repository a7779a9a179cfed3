/*
 * Writes the expressions of vector files as a corpus for fuzz/expr_fuzz.c: a
 * byte that sets how to compile, then the text, one file each.
 *
 *     corpus DIRECTORY FILE.jsonl...
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "expr/expr.h"

static int seed_write(const char *directory, int number, unsigned flags,
                      const struct idem_json *expr) {
    char path[4096];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%05d-%u", directory, number, flags);
    file = fopen(path, "w");
    if (file == NULL)
        return -1;
    fputc((int)flags, file);
    fwrite(expr->at.text, 1, expr->n, file);
    return fclose(file);
}

/* A line that is no JSON here has half a surrogate pair in it, and is left out. */
static int line_write(const char *directory, int number, const char *line, size_t len) {
    const struct idem_json *expr, *mode;
    struct idem_arena arena;
    struct idem_json vector;
    unsigned flags;
    int rc = 0;

    idem_arena_init(&arena, (size_t)16 << 20);
    if (idem_json_parse(line, len, &arena, &vector, NULL) == 0) {
        expr = idem_json_get(&vector, "expr", 4);
        mode = idem_json_get(&vector, "mode", 4);
        if (expr != NULL && mode != NULL && mode->n > 0) {
            flags = mode->at.text[0] == 't' ? IDEM_EXPR_TEMPLATE : 0;
            rc = seed_write(directory, number, flags, expr);
            if (rc == 0)
                rc = seed_write(directory, number, flags | IDEM_EXPR_KEY, expr);
        }
    }
    idem_arena_free(&arena);
    return rc;
}

static int file_write(const char *directory, const char *path, int *number) {
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    int rc = 0;

    if (file == NULL)
        return -1;
    while (rc == 0 && (len = getline(&line, &cap, file)) > 0)
        rc = line_write(directory, (*number)++, line, (size_t)len);
    free(line);
    fclose(file);
    return rc;
}

int main(int argc, char **argv) {
    int number = 0;

    if (argc < 3) {
        fprintf(stderr, "usage: corpus DIRECTORY FILE.jsonl...\n");
        return 2;
    }
    if (mkdir(argv[1], 0777) < 0 && errno != EEXIST) {
        perror(argv[1]);
        return 1;
    }
    for (int i = 2; i < argc; i++)
        if (file_write(argv[1], argv[i], &number) < 0) {
            perror(argv[i]);
            return 1;
        }
    return 0;
}
