/*
 * Shared by the parts of `idem doctor`: findings, one line each, and the files that make them.
 *
 *     doctor.c         the command: decides what is examined, prints findings
 *     doctor_store.c   any store: URL, response, clock, permission to write
 *     doctor_lmdb.c    the directory and the disk of an embedded store
 *     doctor_redis.c   settings that a Redis server reports
 *     doctor_sql.c     settings that PostgreSQL and MySQL report
 *     doctor_policy.c  times that contradict each other, and risks that a policy accepts
 *     doctor_nginx.c   an nginx configuration: its guards and its stores
 *     nginx_reader.c   the output of nginx -T; its blocks; its variables; its syntax
 *
 * The examined systems are not changed, except for one record of idem's own, which is forgotten
 * again.
 */
#ifndef IDEM_CLI_DOCTOR_DOCTOR_H
#define IDEM_CLI_DOCTOR_DOCTOR_H

#include "base/user.h"
#include "cli/cli.h"
#include "store/store.h"

enum doctor_grade {
    DOCTOR_OK,
    DOCTOR_NOTE,   /* safe, but worth knowing */
    DOCTOR_UNSAFE, /* it works, but may run an operation twice, forget it, or show it to others */
    DOCTOR_BROKEN, /* it does not work */
    DOCTOR_GRADES
};

struct doctor {
    const struct cli_values *values;
    const struct idem_user
        *user; /* the workers' user, if root runs nginx; NULL: the user who runs this */
    unsigned counts[DOCTOR_GRADES];
};

/* Reports a finding about `subject` (a store, a location): the check, the finding and why it
   matters, and the remedy (NULL: none is needed). */
void doctor_find(struct doctor *d, enum doctor_grade grade, const char *subject, const char *check,
                 const char *todo, const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/* A rule: it applies, or it does not. doctor_find_all() reports those that apply. */
struct doctor_rule {
    bool applies;
    enum doctor_grade grade;
    const char *check, *found, *todo;
};
void doctor_find_all(struct doctor *d, const char *subject, const struct doctor_rule *rules,
                     size_t n);
#define DOCTOR_FIND_ALL(d, subject, rules)                                                         \
    doctor_find_all(d, subject, rules, sizeof(rules) / sizeof((rules)[0]))

/* Examines the store of any URL; it writes under `prefix`. */
void doctor_store(struct doctor *d, const char *url, const char *prefix);

/* Examines a store without opening it. True: go on and open it. */
bool doctor_lmdb(struct doctor *d, const char *subject, const struct idem_url *url);
void doctor_redis(struct doctor *d, const char *subject, const char *text,
                  const struct idem_url *url);
void doctor_sql(struct doctor *d, const char *subject, const char *text,
                const struct idem_url *url);

/* Reports if a server is reached without encryption or without a password; `loopback`: it is on
   this machine, where neither matters. */
bool doctor_is_loopback(const char *host);
void doctor_network(struct doctor *d, const char *subject, bool loopback, bool tls, bool password);

/* Examines a policy in force; `preset` is the one that is configured, 0: none. */
void doctor_policy(struct doctor *d, const char *subject, const struct idem_policy *policy,
                   enum idem_preset preset);
/* Examines the policies of a settings file. CLI_OK, or an exit status after a message if it cannot
   be read. */
int doctor_settings(struct doctor *d);

/* Examines an nginx configuration, and the stores that it names. CLI_OK, or an exit status after a
   message if nothing could be examined. */
int doctor_nginx(struct doctor *d, const char *path);

#endif
