/*
 * `idem doctor`, inside: findings, one line each, and who makes them.
 *
 *     doctor.c   the command: what is examined, and how findings are said
 *     store.c    any store: its URL, whether it answers, its clock, whether it may be written to
 *     lmdb.c     the folder and the disk of an embedded store
 *     redis.c    what Redis says of itself
 *     sql.c      the same of PostgreSQL and MySQL
 *     policy.c   times that do not go together, and what a policy gives up
 *     nginx.c    a configuration of nginx: its guards, and its stores
 *     dump.c     what nginx -T writes of it
 *     tree.c     its blocks
 *     variable.c its variables
 *     reader.c   its syntax
 *
 * Nothing that is examined is changed but for one record of our own, which is forgotten again.
 */
#ifndef IDEM_CLI_DOCTOR_DOCTOR_H
#define IDEM_CLI_DOCTOR_DOCTOR_H

#include <sys/types.h>

#include "cli/cli.h"
#include "store/store.h"

enum doctor_grade {
    DOCTOR_OK,
    DOCTOR_NOTE,   /* to be known; safe */
    DOCTOR_UNSAFE, /* it works, and may run something twice, forget it, or show it to others */
    DOCTOR_BROKEN, /* it does not work */
    DOCTOR_GRADES
};

/* Who will use a store. */
struct doctor_user {
    const char *name;
    uid_t uid;
    gid_t gid;
};

struct doctor {
    const struct cli_values *values;
    const struct doctor_user *user; /* root's nginx has workers of another; NULL: who runs this */
    unsigned counts[DOCTOR_GRADES];
};

/* A finding about `subject` (a store, a location): which check, what was found and why it matters,
   and what to do (NULL: nothing). */
void doctor_find(struct doctor *d, enum doctor_grade grade, const char *subject, const char *check,
                 const char *todo, const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/* Anything that names a store; what it writes is under `prefix`. */
void doctor_store(struct doctor *d, const char *url, const char *prefix);

/* What is found without opening the store. True: go on and open it. */
bool doctor_lmdb(struct doctor *d, const char *subject, const struct idem_url *url);
void doctor_redis(struct doctor *d, const char *subject, const char *text,
                  const struct idem_url *url);
void doctor_sql(struct doctor *d, const char *subject, const char *text,
                const struct idem_url *url);

/* Secrets and results that go over a network: `loopback`: they do not. */
bool doctor_is_loopback(const char *host);
void doctor_network(struct doctor *d, const char *subject, bool loopback, bool tls, bool password);

/* A policy as it is in force; `preset` as its place says it, 0: none. */
void doctor_policy(struct doctor *d, const char *subject, const struct idem_policy *policy,
                   enum idem_preset preset);
/* Those of a settings file. CLI_OK, or a status after saying why it cannot be read. */
int doctor_settings(struct doctor *d);

/* A configuration of nginx, and the stores that it names. CLI_OK, or a status after saying why
   nothing could be examined. */
int doctor_nginx(struct doctor *d, const char *path);

#endif
