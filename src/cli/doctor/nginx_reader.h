/*
 * nginx's syntax, as far as the tree of blocks needs it: directives, blocks and their ends.
 * Tolerant, since nginx itself has checked the text. Blocks of Lua are skipped.
 */
#ifndef IDEM_CLI_DOCTOR_NGINX_READER_H
#define IDEM_CLI_DOCTOR_NGINX_READER_H

#include <stdbool.h>
#include <stddef.h>

#define NGINX_WORDS_MAX 32 /* of a directive; any further words are dropped */

enum nginx_what {
    NGINX_DIRECTIVE, /* NAME WORDS; */
    NGINX_BLOCK,     /* NAME WORDS { */
    NGINX_BLOCK_END,
    NGINX_END, /* of the text, even within a directive */
};

struct nginx_reader {
    char *at, *end; /* the text, which is changed: words end in NULs, and lose their quotes */
};

struct nginx_directive {
    char *words[NGINX_WORDS_MAX]; /* in the text; the first is the name */
    size_t n;
};

/* Reads the next directive, or the next end. With NGINX_DIRECTIVE and NGINX_BLOCK *ret has at least
   one word. */
enum nginx_what nginx_next(struct nginx_reader *reader, struct nginx_directive *ret);

#endif
