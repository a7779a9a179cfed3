/*
 * An nginx configuration as a tree of blocks with their directives, and the output of nginx -T from
 * which it is read.
 */
#ifndef IDEM_CLI_DOCTOR_DOCTOR_NGINX_H
#define IDEM_CLI_DOCTOR_DOCTOR_NGINX_H

#include "base/arena.h"
#include "cli/doctor/doctor.h"
#include "core/policy.h"

#define NGINX_DEPTH_MAX 32
#define NGINX_USER 64

/* The directives of a block that are kept. */
enum nginx_word {
    AUTH_BASIC,
    AUTH_BASIC_FILE,
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
    PROXY_PASS, /* from here on: not inherited */
    INTERNAL,
    TOKEN,
    JS,
    STATUS,
    ADMIN,
    NGINX_WORDS
};

/* Access by allow and deny: the first directive that matches counts. */
enum nginx_access {
    ACCESS_UNSAID,
    ACCESS_SOME,   /* neither of the two below: unnamed addresses are let in */
    ACCESS_ALL,    /* allow all, before any deny all */
    ACCESS_CLOSED, /* deny all: only named addresses are let in */
};

/* A variable: set $NAME VALUE, or map VALUE $NAME. */
struct nginx_set {
    const struct nginx_set *next;
    const char *name, *value; /* both as written */
    bool map;
};

struct nginx_scope {
    struct nginx_scope *outer;
    struct nginx_scope *next;        /* in the order of the files */
    const char *values[NGINX_WORDS]; /* the first argument of each; NULL: not set here */
    const char *location;            /* NULL: not a location */
    const char *condition;        /* of an `if`, which belongs to its location; NULL: not an `if` */
    const struct nginx_set *sets; /* includes those of its `if` blocks */
    enum nginx_access access;
    struct idem_layer layer; /* the directives of the policy */
    bool mentions_idem;      /* contains a directive of idem's */
    bool guards, off;        /* idem or idem_preset is set here; it is `off` */
    bool admin_all;          /* idem_admin allow=all, or a network as large as that */
};

struct nginx_tree {
    struct nginx_scope *first, **last;
    struct idem_arena arena;  /* holds all scopes, and the text that they point into */
    const char *user, *group; /* of the workers; NULL: not set */
    bool cut;                 /* the limits were exceeded: a part was not read */
};

/* Returns the output of nginx -T, to be freed, and the user that nginx was compiled for. NULL with
   *ret_status: CLI_OK if nginx refuses the configuration, which is a finding, or an exit status
   after a message if nginx could not be run. */
char *nginx_dump(struct doctor *d, const char *path, size_t *ret_len, char ret_user[NGINX_USER],
                 int *ret_status);

/* Reads the blocks from such an output, which it changes; `path` is the configuration's own. 0 or
   IDEM_E_NOMEM. Must be released either way. */
int nginx_tree_read(struct nginx_tree *tree, const char *path, char *text, size_t len);
void nginx_tree_release(struct nginx_tree *tree);

/* The value in force in a block: the nearest block that sets it counts. NULL: not set. */
const char *nginx_value(const struct nginx_scope *scope, enum nginx_word word);
bool nginx_guarded(const struct nginx_scope *scope);
enum nginx_access nginx_access(const struct nginx_scope *scope);

/* True if `text` contains a variable for which `is` returns true, directly or through variables
   that `set` makes of it; with `maps` also through those that `map` makes. `is` gets the name
   without $ and braces. */
bool nginx_names(const struct nginx_scope *scope, const char *text, bool maps,
                 bool (*is)(const char *name));
/* True if a name matches one of the patterns (fnmatch, without regard to case); they end with
   NULL. */
bool nginx_name_fits(const char *name, const char *const *patterns);

#endif
