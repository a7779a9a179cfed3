/*
 * nginx's syntax, as far as one must read it to see who says what where: directives, blocks and
 * their ends. Tolerant: nginx itself has checked what is read here. Blocks of Lua are passed over.
 */
#ifndef IDEM_CLI_DOCTOR_READER_H
#define IDEM_CLI_DOCTOR_READER_H

#include <stdbool.h>
#include <stddef.h>

#define NGINX_WORDS_MAX 32 /* of a directive; further ones are dropped */

enum nginx_what {
    NGINX_DIRECTIVE, /* NAME WORDS; */
    NGINX_BLOCK,     /* NAME WORDS { */
    NGINX_BLOCK_END,
    NGINX_END, /* of the text, also amidst a directive */
};

struct nginx_reader {
    char *at, *end; /* the text, which is changed: words end in NULs, and quotes are taken off */
};

struct nginx_said {
    char *words[NGINX_WORDS_MAX]; /* in the text; the first is the name */
    size_t n;
};

/* What comes next. With NGINX_DIRECTIVE and NGINX_BLOCK *ret has at least one word. */
enum nginx_what nginx_next(struct nginx_reader *reader, struct nginx_said *ret);

#endif
