/*
 * The parts that the files of idem(1) share: the commands, the exit statuses, the error messages,
 * and the opening of the store.
 */
#ifndef IDEM_CLI_CLI_H
#define IDEM_CLI_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/options.h"
#include "idem.h"
#include "loop/poll.h"

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
    CLI_NOT_EXECUTABLE = 126, /* as in shells */
    CLI_NOT_FOUND = 127,
};

struct cli_command {
    const char *name;
    const char *summary;  /* one line */
    const char *synopsis; /* the text after `idem NAME` */
    const char *text;     /* the rest of its help, before and after the options */
    const char *after;
    const char *operand;        /* "a key": the operand that could begin with a dash; or NULL */
    const char *no_operand;     /* it takes none: the text for one; or NULL */
    const char *const *options; /* names in cli_option_table; NULL-terminated */
    bool policy;                /* accepts the flags of the policy table, too */
    const char *const *policy_without; /* the flags that it does not accept; NULL: accepts all */
    const struct cli_policy_help
        *policy_help;      /* this command's own help for some of them, or NULL */
    const char *policy_is; /* a second meaning of each of them; NULL: settings' words */
    bool stops;            /* options end at the first operand */
    /* One of the two; both return the exit status. The second gets the store, opened. */
    int (*run)(const struct cli_values *values);
    int (*run_on_store)(struct idem *h, const struct cli_values *values);
};

extern const struct cli_command cli_run, cli_show, cli_list, cli_settle, cli_forget, cli_stats,
    cli_eval, cli_canon, cli_id, cli_gateway, cli_token, cli_sign, cli_verify, cli_migrate,
    cli_consume, cli_dead, cli_doctor;

/* All commands, NULL at the end. */
extern const struct cli_command *const cli_commands[];

/* cli_message.c. */

/* Writes one line to stderr: "idem: " and the text. Control characters are made harmless. */
void cli_message(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The same; returns the exit status. */
int cli_fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same for a command line that is wrong: "COMMAND: the text (see: idem help COMMAND)". Returns
   CLI_USAGE. */
int cli_usage(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same for an error of the library; returns the exit status for its code. */
int cli_message_error(const char *doing, const struct idem_error *err);

/* Flushes stdout. Returns CLI_OK, or CLI_IO after reporting the error. A reader that closed the
   pipe early is no failure. */
int cli_flush(void);

/* Writes all bytes, and waits until the descriptor takes them; false with errno if it does not. */
bool cli_write_all(int fd, const void *bytes, size_t len);

/* Copies bytes from a record as one line of a table: a byte that is not visible (base/visible.h) or
   not UTF-8 becomes '?'. Returns buf. */
const char *cli_printable(const char *text, char *buf, size_t size);

/* store_open.c. */

/* The callback for idem_options.notice; its data are the values. Writes a line to stderr, unless
   --quiet. */
void cli_notice(void *data, const char *text);

/* The engine of a store or SQL database, by its URL's scheme. */
enum cli_store_kind {
    CLI_STORE_OTHER,
    CLI_STORE_LMDB,
    CLI_STORE_REDIS,
    CLI_STORE_POSTGRES,
    CLI_STORE_MYSQL,
    CLI_STORE_SQLITE,
};
enum cli_store_kind cli_store_kind(const char *url);

/* The directory of root's own store. Another user who could write to it could put a link where root
   writes. */
#define CLI_ROOTS_FOLDER "/var/lib/idem"

/* Returns the URL of a store that is created if it does not exist: --store, $IDEM_STORE, or the
   default place, whose directories are created. Owned by the caller; NULL after reporting the
   error, with *ret_status set. */
char *cli_store_url(const struct cli_values *values, int *ret_status);
char *cli_store_url_given(const struct cli_values *values, int *ret_status); /* creates nothing */
char *cli_store_url_absolute(char *url);
/* Copies an argument that is a URL, and overwrites its user and password where processes are
   listed. Owned by the caller; NULL after reporting the error. */
char *cli_secret_url(const char *url);

/* Opens an existing store for blocking calls; NULL after reporting the error, with *ret_status set.
   Not for a command that starts others: if root opens an embedded store in another user's
   directory, the process becomes that user for good. So files that only root may open, such as the
   audit, must be open before. */
struct idem *cli_open(const struct cli_values *values, int *ret_status);

/* The same for a store that is created if it does not exist. */
struct idem *cli_open_or_make(const struct cli_values *values, int *ret_status);

/* The same on a poll, which drives the store from then on. Returns the library's code; the caller
   reports the error. */
int cli_open_on_poll(const struct cli_values *values, const char *url,
                     struct idem_settings *settings, struct idem_poll *poll, struct idem **ret,
                     struct idem_error *err);

/* Reads --config; *ret is NULL without one. Returns CLI_OK, or a status after reporting the
   error. */
int cli_settings(const struct cli_values *values, struct idem_settings **ret);

/* record_list.c. */

/* Finds the record that `[--prefix P] [--scope S] KEY` or `--hash HEX` names; strings are borrowed
   from values and from *hold. Returns CLI_OK, or a status after reporting the error. */
struct cli_record_name_hold {
    char hash[65];
    char prefix[IDEM_PREFIX_MAX + 1];
};
int cli_record_name(struct idem *h, const struct cli_values *values,
                    struct cli_record_name_hold *hold, struct idem_name *ret);

/* True if more than the record's name can be read. A record that is damaged, or written by a newer
   version, is listed all the same. */
bool cli_entry_readable(const struct idem_entry *entry);

/* "running", "uncertain", "damaged" and so on, for people and for --state. */
const char *cli_entry_state(const struct idem_entry *entry);

/* Makes the filter of --prefix, --state and --since. Returns CLI_OK, or a status after reporting
   the error. */
int cli_record_filter(struct idem *h, const struct cli_values *values, struct idem_filter *ret);

/* True if --state matches this entry; a `running` record still has its lease. */
bool cli_record_filter_takes(const struct cli_values *values, const struct idem_entry *entry);

/* Calls `each` for each record that the filter selects until it returns false. Returns CLI_OK, or a
   status after reporting the error. */
int cli_record_each(struct idem *h, const struct cli_values *values,
                    const struct idem_filter *filter,
                    bool (*each)(const struct idem_entry *entry, void *data), void *data);

/* The number of digits of a hash that people see, and the least number that --hash takes. */
#define CLI_HASH_SHORT 12
#define CLI_HASH_LEAST 8

#define CLI_PREFIX "run:"

#endif
