/*
 * A configuration of nginx as blocks with what each says, and what nginx -T writes of it.
 */
#ifndef IDEM_CLI_DOCTOR_NGINX_H
#define IDEM_CLI_DOCTOR_NGINX_H

#include "cli/doctor/doctor.h"
#include "core/arena.h"
#include "core/policy.h"

#define NGINX_DEPTH_MAX 32
#define NGINX_USER 64

/* What is remembered of a block, by name. */
enum nginx_word {
    AUTH_BASIC,
    AUTH_REQUEST,
    AUTH_JWT,
    VERIFY_CLIENT,
    SATISFY,
    ENFORCE,
    LABEL,
    PROBE,
    SCOPE,
    STORE,
    HTTP_VERSION,
    SERVER_NAME,
    PROXY_PASS, /* from here on a location's own only */
    INTERNAL,
    TOKEN,
    JS,
    STATUS,
    ADMIN,
    NGINX_WORDS
};

/* Who comes in by allow and deny: the first that fits counts. */
enum nginx_access {
    ACCESS_UNSAID,
    ACCESS_SOME,   /* neither of those below: who is not named comes in */
    ACCESS_ALL,    /* allow all, before any deny all */
    ACCESS_CLOSED, /* deny all: only who is named */
};

/* set $NAME VALUE, or map VALUE $NAME. */
struct nginx_set {
    const struct nginx_set *next;
    const char *name, *value; /* both as they are said */
    bool map;
};

struct nginx_scope {
    struct nginx_scope *outer;
    struct nginx_scope *next;        /* in the order of the files */
    const char *values[NGINX_WORDS]; /* its first word; NULL: not said here */
    const char *location;            /* NULL: it is none */
    const char *condition;           /* of an `if`, which is of its location; NULL: it is none */
    const struct nginx_set *sets;    /* those of its ifs, too */
    enum nginx_access access;
    struct idem_layer layer; /* the policy's words */
    bool says;               /* anything of idem's */
    bool guards, off;        /* idem or idem_preset was said here; `off` */
    bool admin_all;          /* idem_admin allow=all, or a network of everybody */
};

struct nginx_tree {
    struct nginx_scope *first, **last;
    struct idem_arena arena;  /* all scopes, and the text that they point into */
    const char *user, *group; /* of the workers; NULL: not said */
    bool cut;                 /* more than is read was there: the rest is not known */
};

/* What nginx -T writes, to be freed, and the user that it was compiled for; NULL with *ret_status:
   CLI_OK where it has refused, which is a finding, or a status after saying why it was not asked.
 */
char *nginx_dump(struct doctor *d, const char *path, size_t *ret_len, char ret_user[NGINX_USER],
                 int *ret_status);

/* The blocks of such a text, which is changed; `path` is the configuration's own. 0 or
   IDEM_E_NOMEM. Released either way. */
int nginx_tree_read(struct nginx_tree *tree, const char *path, char *text, size_t len);
void nginx_tree_release(struct nginx_tree *tree);

/* What is in force in a block: the nearest that says. NULL: nobody does. */
const char *nginx_value(const struct nginx_scope *scope, enum nginx_word word);
bool nginx_guarded(const struct nginx_scope *scope);
enum nginx_access nginx_access(const struct nginx_scope *scope);

/* Whether a text names a variable that `is` one, itself or by a variable that `set` makes of it;
   `maps`: or one that `map` chooses by it. `is` gets its name without $ and braces. */
bool nginx_names(const struct nginx_scope *scope, const char *text, bool maps,
                 bool (*is)(const char *name));
/* Whether a name fits one of these patterns (fnmatch, whatever the case); NULL at the end. */
bool nginx_name_fits(const char *name, const char *const *patterns);

#endif
