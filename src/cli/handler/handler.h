/*
 * The handlers of idem consume: a program per message (--exec), long-lived
 * workers (--exec-jsonl), an HTTP endpoint (--to). They know neither brokers nor
 * stores.
 *
 * What they need of the process around them: SIGPIPE and SIGCHLD as cli/signals.h
 * has them, and descriptors 0 to 2 open. The loop's host is level-triggered.
 */
#ifndef IDEM_CLI_HANDLER_HANDLER_H
#define IDEM_CLI_HANDLER_HANDLER_H

#include "cli/handler/rules.h"
#include "cli/signals.h"
#include "loop/loop.h"
#include "queue/handler.h"

#define HANDLER_WORKERS_MAX 1024
/* The longest delay that a handler can ask for; what is longer is cut to it. */
#define HANDLER_DELAY_MAX_MS (24 * 3600 * INT64_C(1000))

/* One that was opened. */
struct handler {
    struct queue_handler queue; /* what the consumer is given */
    void (*close)(void *data);
};

/* Ends what is still at work, without telling it, and waits for that as each says below. Not inside
   a call-back. One that is zeros is closed. */
void handler_close(struct handler *handler);

/* How programs are run. */
struct handler_program {
    const char *command;               /* for /bin/sh -c */
    const struct cli_signals *signals; /* put back for it; NULL: none were taken. Must stay */
    int64_t kill_after_ms;             /* from SIGTERM to SIGKILL */
    int die_with; /* the signal it gets when we are killed (SIGTERM where somebody else may run the
                     message then: recover=rerun); 0: none */
};

/* 0, or IDEM_E_INVALID: what both kinds of programs are opened with, and how many at a time. */
int handler_workers_check(unsigned workers, struct idem_error *err);
int handler_program_check(const char *option, const struct handler_program *program,
                          unsigned workers, struct idem_error *err);

/*
 * --exec: one process per message, with the body as its stdin (a file that lies in
 * memory: who does not read it is not waited for), IDEM_* variables (variables.h),
 * and our stdout and stderr. It is over when the process is, whoever it has left
 * behind.
 *
 *     exit status       what `on_exit` says (rules.h)
 *     a signal          unknown
 *     cancelled         unknown, whatever it says: many programs end with 0 when
 *                       they are asked to. Its group gets SIGTERM, then SIGKILL
 *     not started       unbegun: no process, no memory, or the lease is over
 *
 * Closing kills.
 */
struct handler_exec_config {
    struct handler_program program;
    const struct handler_rules *on_exit; /* copied; NULL: the defaults */
    unsigned workers;
};
int handler_exec_open(const struct handler_exec_config *config, struct idem_loop *loop,
                      struct handler *ret, struct idem_error *err);

/*
 * --exec-jsonl: long-lived processes, one message at a time each, by a line of JSON
 * in and one out (answer.h); our stderr is theirs.
 *
 *     the answer           what it says
 *     something else, a line without a question, more than 64 KiB, stdout closed
 *                          unknown, and the worker is killed; the reason says what
 *                          was wrong, never what was said
 *     it dies              unknown; unbegun if no byte of the message was read, or,
 *                          if it has answered others before, another worker has it
 *     cancelled            its group gets SIGTERM, then SIGKILL. What it still
 *                          answers counts; else unknown
 *     it cannot be started unbegun
 *
 * A worker that ends is started again: at once if it has answered or was ten
 * seconds old, else after a pause that grows from 100 ms to 30 s.
 *
 * Closing closes their stdin, waits for a second, then asks them to end by
 * SIGTERM, and kills them after kill_after_ms: it blocks that long.
 */
struct handler_jsonl_config {
    struct handler_program program;
    unsigned workers;
};
int handler_jsonl_open(const struct handler_jsonl_config *config, struct idem_loop *loop,
                       struct handler *ret, struct idem_error *err);

/*
 * --to: a POST to an endpoint, the body as it is, with Idempotency-Key (the key as
 * a string of structured fields if it is printable ASCII of up to 255 bytes, else
 * the record's hash), Idem-Attempt, Idem-Downstream-Key, Content-Type and
 * Content-Encoding, and the message's own headers: those that are text, fields of
 * HTTP, neither of the connection nor of Idem, and no credentials; 64 of them, 8
 * KiB in all, and Idem-Omitted says how many there was no room for.
 *
 *     a whole answer       what Idem-Outcome says (done; release: retry; keep: dead;
 *                          unknown), else what `on_status` says of its status
 *                          (rules.h). Retry-After says when to retry
 *     nothing was sent     unbegun: no connection, no name, no TLS, the lease over
 *     anything else        unknown: a time-out, a connection that broke, cancelled
 *
 * Connections are kept. Neither proxies nor redirects nor cookies: a message goes
 * to the URL. Closing does not wait.
 */
struct handler_to_config {
    const char *url;
    const char *prefix;  /* of the policy: for Idem-Downstream-Key */
    const char *ca_file; /* who may vouch for an https endpoint; NULL: the system's */
    const struct handler_rules *on_status; /* copied; NULL: the defaults */
    int64_t timeout_ms;
    unsigned workers;
};
int handler_to_open(const struct handler_to_config *config, struct idem_loop *loop,
                    struct handler *ret, struct idem_error *err);

#endif
