/*
 * What the files of idem(1) share: the commands, the exit statuses, how errors
 * are said, and where the store is.
 */
#ifndef IDEM_CLI_CLI_H
#define IDEM_CLI_CLI_H

#include <stdio.h>

#include "cli/options.h"
#include "idem.h"

/* Idem's own exit statuses, after sysexits(3). idem(1) explains each. */
enum cli_exit {
    CLI_OK = 0,
    CLI_USAGE = 64,
    CLI_MISMATCH = 65,
    CLI_ABSENT = 66,
    CLI_STORE = 69,
    CLI_UNCERTAIN = 70,
    CLI_SYSTEM = 71,
    CLI_IO = 74,
    CLI_BUSY = 75,
    CLI_LOST = 76,
    CLI_DEAD = 77,
    CLI_CONFIG = 78,
    CLI_NOT_EXECUTABLE = 126, /* as shells have it */
    CLI_NOT_FOUND = 127,
};

struct cli_command {
    const char *name;
    const char *summary;  /* one line */
    const char *synopsis; /* what follows `idem NAME` */
    const char *text;     /* the rest of its help, before and after the options */
    const char *after;
    const char *operand;                       /* "a key": what could begin with a dash; or NULL */
    const char *const *options;                /* names in cli_option_table; NULL-terminated */
    bool policy;                               /* takes the flags of the policy table as well */
    const char *const *policy_without;         /* those that it does not take; NULL: takes all */
    const struct cli_policy_help *policy_help; /* what it says differently of them, or NULL */
    const char *policy_is; /* what else each of them is; NULL: settings' words */
    bool stops;            /* options end at the first operand */
    int (*run)(const struct cli_values *values); /* returns the exit status */
};

extern const struct cli_command cli_run, cli_show, cli_list, cli_settle, cli_forget, cli_stats,
    cli_eval, cli_canon, cli_id, cli_gateway, cli_token, cli_sign, cli_verify, cli_migrate,
    cli_consume, cli_dead, cli_doctor;

/* All of them, NULL at the end. */
extern const struct cli_command *const cli_commands[];

/* Say.c. */

/* One line on stderr: "idem: " and the text, with control characters made harmless. */
void cli_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The same for a library's error; returns the exit status that goes with its code. */
int cli_say_error(const char *doing, const struct idem_error *err);

/* Flushes stdout; CLI_OK, or CLI_IO after saying why. A reader who left early is no failure. */
int cli_flush(void);

/* Bytes from a record as one line of a table: control characters and what is not UTF-8 become
   '?'. Returns buf. */
const char *cli_printable(const char *text, char *buf, size_t size);

/* Place.c. */

/* For idem_options.notice, with the values as its data: a line on stderr, unless --quiet. */
void cli_notice(void *data, const char *text);

/* Root's own store is there. Whoever else could write to it could put a link where root writes. */
#define CLI_ROOTS_FOLDER "/var/lib/idem"

/* The URL of a store that is made where there is none: --store, $IDEM_STORE, or the default place,
   whose folders are made. Owned by the caller; NULL after saying why, with *ret_status set. */
char *cli_store_url(const struct cli_values *values, int *ret_status);
char *cli_store_url_said(const struct cli_values *values, int *ret_status); /* makes nothing */
char *cli_store_url_whole(char *url);
/* A copy of an argument that is a URL, whose user and password are made unreadable where processes
   are listed. Owned by the caller; NULL after saying why. */
char *cli_secret_url(const char *url);

/* Opens a store that is there already, for blocking calls; NULL after saying why, with *ret_status
   set. */
struct idem *cli_open(const struct cli_values *values, int *ret_status);

/* The same for a store that is made where there is none. */
struct idem *cli_open_or_make(const struct cli_values *values, int *ret_status);

/* Reads --config; *ret is NULL without one. CLI_OK, or a status after saying why. */
int cli_settings(const struct cli_values *values, struct idem_settings **ret);

/* Name.c. */

/* The record that `[--prefix P] [--scope S] KEY` or `--hash HEX` names; strings are borrowed
   from values and from *hold. CLI_OK, or a status after saying why. */
struct cli_name_hold {
    char hash[65];
    char prefix[IDEM_PREFIX_MAX + 1];
};
int cli_name(struct idem *h, const struct cli_values *values, struct cli_name_hold *hold,
             struct idem_name *ret);

/* Whether it says anything but its name: one that is damaged, or written by a newer version, is
   listed all the same. */
bool cli_entry_readable(const struct idem_entry *entry);

/* "running", "uncertain", "damaged" and so on, for people and for --state. */
const char *cli_entry_state(const struct idem_entry *entry);

/* The filter of --prefix, --state and --since. CLI_OK, or a status after saying why. */
int cli_filter(struct idem *h, const struct cli_values *values, struct idem_filter *ret);

/* Whether --state names this entry: `running` is what still has its lease. */
bool cli_filter_takes(const struct cli_values *values, const struct idem_entry *entry);

/* Calls `each` for what the filter names until it returns false. CLI_OK, or a status after
   saying why. */
int cli_each(struct idem *h, const struct cli_values *values, const struct idem_filter *filter,
             bool (*each)(const struct idem_entry *entry, void *data), void *data);

/* How many digits of a hash are shown to people, and the fewest that --hash takes. */
#define CLI_HASH_SHORT 12
#define CLI_HASH_LEAST 8

#define CLI_PREFIX "run:"

#endif
