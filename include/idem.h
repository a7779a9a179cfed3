/*
 * idem.h - make an operation happen once, however often it is asked for.
 *
 * This header is the manual of libidem. In one paragraph: open a store, make a
 * guard from a policy (C's annotation), and wrap your function in idem_call().
 * The first caller with a key runs the function; every later caller with that
 * key receives the outcome.
 *
 *     static const struct idem_policy create_order = {
 *         .prefix = "order:", .scope = IDEM_SCOPE_NONE,
 *         .mode = IDEM_MODE_REPLAY, .ttl_s = 24 * 3600,
 *     };
 *
 *     struct idem *h;
 *     struct idem_guard *guard;
 *     struct idem_outcome out;
 *     struct idem_error err;
 *
 *     if (idem_open("lmdb:/var/lib/shop/idem", NULL, &h, &err) < 0 ||
 *         idem_guard_new(h, &create_order, &guard, &err) < 0)
 *         errx(1, "%s", err.text);
 *
 *     struct idem_args args = {.key = "4711", .key_len = 4};
 *     if (idem_call(h, guard, &args, place_order, order, &out, &err) < 0)
 *         errx(1, "%s", err.text);
 *     switch (out.verdict) { ... }
 *     idem_outcome_release(&out);
 *
 * ERRORS. A call returns 0 or a negative enum idem_code, with the details in
 * the caller's struct idem_error (which may be NULL). Out-parameters are
 * untouched on failure. A verdict (busy, duplicate, ...) is not an error. A
 * pointer that is NULL is IDEM_E_INVALID in every function that returns a code,
 * unless its description below allows NULL.
 *
 * OWNERSHIP. Inputs are copied: nothing that is passed in needs to outlive the
 * call. Results passed to a callback are borrowed until it returns. Results of
 * blocking calls belong to the caller and are freed with the function named at
 * their declaration. Every destructor takes NULL.
 *
 * THREADS. A handle from idem_open() may be used from any number of threads at
 * once. A handle from idem_open_on() belongs to the thread of its loop. A guard
 * is immutable and may be shared by all threads of the process; so may
 * settings. A struct idem_claim belongs to the thread of its handle's loop. The
 * function given to idem_call() runs in the thread that called.
 *
 * FORK. A handle does not survive fork(): in the child every call returns
 * IDEM_E_FORK. There idem_close() leaves a handle from idem_open() as it is,
 * memory and descriptors, because another thread may have been in the middle of
 * a change when the process forked. It frees a handle from idem_open_on()
 * without touching anything that the parent uses, which is sound if the loop's
 * own thread forked. Open after the fork.
 *
 * SIGNALS. The library installs no signal handler, leaves the caller's mask as
 * it is, and raises no SIGPIPE. Its own threads block every signal. Blocking
 * calls go on after EINTR. No function here is async-signal-safe. Under a limit
 * on the size of files (RLIMIT_FSIZE) the kernel raises SIGXFSZ in the process
 * that writes: a program with such a limit must ignore that signal, and receives
 * IDEM_E_FULL.
 *
 * PAGES. options.md (every option, its range and default), keys.md (expressions
 * and fingerprints), stores.md (URLs and what each store survives), sign.md
 * (signed requests), sql.md (guards in your own transaction) and protocol.md lie
 * in docs/, and are installed under share/doc/idem.
 *
 * LOGS. The library prints nothing. No error text contains a key, a scope, a
 * password or a result; a key is named by its hash.
 *
 * ABI. Only the functions below are exported, under versioned symbols. Before
 * 1.0 a minor release may change a struct, and the soname changes with it; a
 * patch release does not. Set structs up with designated initialisers or
 * memset: zero always means "not set".
 */
#ifndef IDEM_H
#define IDEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define IDEM_VERSION "0.1.0"

/* Limits of a caller's input; a call beyond them is IDEM_E_INVALID. */
#define IDEM_KEY_MAX 4096
#define IDEM_SCOPE_MAX 4096
#define IDEM_PREFIX_MAX 128
#define IDEM_LABEL_MAX 256
#define IDEM_REASON_MAX 1024
#define IDEM_RESULT_MAX (64u << 20) /* the highest result_max that can be set */
#define IDEM_JSON_MAX (64u << 20)   /* the highest json_max that can be set */

const char *idem_version(void);

/* Errors. */

enum idem_code {
    IDEM_OK = 0,
    IDEM_E_INVALID = -1, /* a mistake of the caller's; the text describes it */
    IDEM_E_NOMEM = -2,
    IDEM_E_REFUSED = -3,  /* the store refused, or could not be reached: nothing happened */
    IDEM_E_UNKNOWN = -4,  /* the store did not respond: it may have happened */
    IDEM_E_FULL = -5,     /* store or disk is full: nothing happened */
    IDEM_E_CORRUPT = -6,  /* a record or the store's file is damaged */
    IDEM_E_VERSION = -7,  /* written by a newer version than this one reads */
    IDEM_E_CLOCK = -8,    /* the machine's clock jumped, by more than a day in all */
    IDEM_E_FORK = -9,     /* the handle was opened before a fork */
    IDEM_E_ABSENT = -10,  /* there is no such record; opening: no store (create=no) */
    IDEM_E_LIVE = -11,    /* another owner holds a live lease on it: needs force */
    IDEM_E_SETTLED = -12, /* it is done already: forget it, if it must run again; or its state is no
                             longer idem_settlement.from */

    /* Of a transaction in SQL; idem_tx_call() begins it anew by itself. */
    IDEM_E_RETRY_TX = -13, /* another transaction interfered: roll it back, and begin it anew */
    IDEM_E_TX_LOST = -14, /* the same, and the server has rolled it back already: further statements
                             on this connection are outside of it */
};

struct idem_error {
    int code;
    char text[512]; /* the fault, its place, and the remedy; NUL-terminated */
};

/* Words. */

enum idem_state {
    IDEM_ABSENT,
    IDEM_ISSUED,  /* a token that was handed out and not used yet */
    IDEM_RUNNING, /* uncertain, when its lease is over */
    IDEM_DONE,
    IDEM_FAILED,
    IDEM_DAMAGED, /* only in a list: it cannot be read, and its key is IDEM_E_CORRUPT until
                     idem_forget() with force removes it */
    IDEM_NEWER,   /* only in a list: a newer version wrote it, and its key is IDEM_E_VERSION */
};

enum idem_verdict {
    IDEM_RUN = 1,   /* yours to run */
    IDEM_REPLAY,    /* done; here is the first result */
    IDEM_DUPLICATE, /* done; the result was not kept, or is not given out */
    IDEM_BUSY,      /* another owner runs it, or the retry is not due yet */
    IDEM_MISMATCH,  /* the key was used before with another fingerprint */
    IDEM_UNCERTAIN, /* a run vanished, and recover=hold */
    IDEM_DEAD,      /* failed for good */
    IDEM_NO_TOKEN,  /* never issued, expired, or issued to another caller */
    IDEM_PROBE,     /* yours to find out (only for a claim with .probe) */
};

enum idem_mode { IDEM_MODE_LOCK = 1, IDEM_MODE_REJECT, IDEM_MODE_REPLAY };
enum idem_recover { IDEM_RECOVER_HOLD = 1, IDEM_RECOVER_RERUN };
enum idem_on_failure { IDEM_ON_FAILURE_RELEASE = 1, IDEM_ON_FAILURE_RETRY, IDEM_ON_FAILURE_KEEP };
enum idem_on_duplicate { IDEM_ON_DUPLICATE_ERROR = 1, IDEM_ON_DUPLICATE_SUCCESS };
enum idem_on_store_error { IDEM_ON_STORE_ERROR_CLOSED = 1, IDEM_ON_STORE_ERROR_OPEN };
enum idem_key_kind {
    IDEM_KEY_LITERAL = 1, /* idem_args.key, or key_fn's */
    IDEM_KEY_TOKEN,       /* one that the server issued */
    IDEM_KEY_EXPRESSION,  /* key_expr over idem_args.json */
    IDEM_KEY_PARAMETERS,  /* path + user (the scope) + digest of idem_args.json */
    IDEM_KEY_SERIAL,      /* serial number + id of the credential, both required */
};
enum idem_preset {
    IDEM_PRESET_SUBMIT = 1, /* a button: replay, wait, 45 s */
    IDEM_PRESET_API,        /* replay, 24 h, release */
    IDEM_PRESET_PAYMENT,    /* replay, 24 h, hold, keep */
    IDEM_PRESET_QUEUE,      /* reject, rerun, retry */
    IDEM_PRESET_JOB,        /* reject, 24 h */
};

/* The names used in logs, on the command line and in settings; "?" if unknown. */
const char *idem_state_name(enum idem_state state);
const char *idem_verdict_name(enum idem_verdict verdict);
const char *idem_code_name(int code);

/* Policy: C's annotation. */

/* For a number whose zero has a meaning of its own ("do not wait", "no limit"). */
#define IDEM_NONE (-1)

/* Sets one scope for all callers. It must be set explicitly. */
#define IDEM_SCOPE_NONE "none"

/* Requires that each call sets its own scope; a call without one is an error. */
#define IDEM_SCOPE_CALLER "caller"

/*
 * A function that computes a key. It writes at most `size` bytes into `buf` and returns their
 * number, 0 if there is no key (which is an error), or a negative number to refuse the call.
 */
typedef long idem_key_fn(void *data, char *buf, size_t size);

/*
 * The annotation. Everything left at zero is taken from [policy NAME] in the settings, then from
 * [defaults], then from the table of defaults in options.md. A preset fills in the fields that its
 * own layer does not set.
 */
struct idem_policy {
    const char *name; /* names [policy NAME] in the settings, and errors */
    enum idem_preset preset;
    enum idem_mode mode;
    enum idem_key_kind key_kind;
    const char *key_expr; /* the key as an expression or a template: keys.md; alone, it implies
                             IDEM_KEY_EXPRESSION */
    idem_key_fn *key_fn;  /* computes a literal key from idem_args.data */
    const char *prefix;   /* required: put before the key, 1..128 bytes */
    const char *scope; /* required: a fixed scope, IDEM_SCOPE_NONE or IDEM_SCOPE_CALLER; a call may
                          set its own in idem_args */
    int fingerprint;   /* the definition of "the same arguments" that the caller uses, 1..INT_MAX;
                          fingerprints of two definitions are not compared. IDEM_NONE: none is
                          compared. Default 1; if keys are computed from the arguments, only the
                          fingerprint that the call passes */
    const char *fingerprint_expr; /* the part of idem_args.json that must be equal: keys.md */
    int64_t json_max; /* bytes; longer JSON is compared byte for byte, and refused if an expression
                         would read it */
    int64_t ttl_s;
    int64_t hold_ttl_s;
    int64_t lease_ms;
    int64_t run_max_ms; /* IDEM_NONE: no bound */
    int64_t wait_ms;    /* IDEM_NONE: do not wait */
    enum idem_recover recover;
    enum idem_on_failure on_failure;
    int attempts; /* IDEM_NONE: no limit */
    int64_t backoff_min_ms;
    int64_t backoff_max_ms;
    enum idem_on_duplicate on_duplicate;
    enum idem_on_store_error on_store_error;
    const char *message;       /* the text for a refused caller */
    int64_t result_max;        /* bytes; a longer result is not kept */
    int64_t finish_timeout_ms; /* how long a finish is tried while the store is down */
    int64_t token_ttl_s;       /* how long a token may wait for its use */
};

/* Settings. */

struct idem_settings;

/*
 * Reads an INI file: [defaults], [policy NAME]; the words of options.md. An unknown word or a value
 * out of range is IDEM_E_INVALID with file, line and the allowed values. The settings belong to the
 * caller: idem_settings_free(). The name, which appears in errors, may be NULL.
 */
int idem_settings_load(const char *path, struct idem_settings **ret, struct idem_error *err);
int idem_settings_parse(const char *name, const char *text, size_t len, struct idem_settings **ret,
                        struct idem_error *err);
void idem_settings_free(struct idem_settings *settings);

/* Handles. */

struct idem;

struct idem_options {
    const struct idem_settings *settings; /* copied */
    int64_t op_timeout_ms; /* one operation of the store; default: 10 s, or a second more than the
                              store's own timeout= if that is longer */

    /* Receives a line of text, each once, that an operator should know about the store and that is
       no error (stores.md). It runs on the handle's loop or in its thread, and may call nothing of
       this library. May be NULL. */
    void (*notice)(void *data, const char *text);
    void *notice_data;
};

/*
 * Opens a store by URL: "lmdb:PATH[?sync=always|off&...]" (stores.md).
 * For blocking calls, from any thread. The options may be NULL.
 */
int idem_open(const char *url, const struct idem_options *options, struct idem **ret,
              struct idem_error *err);

/*
 * The same on the caller's own loop. The library makes requests through two callbacks and receives
 * events through two functions; level- and edge-triggered loops both work. A callback of the
 * library runs only inside idem_ready() and idem_timeout(), never inside the call that caused it.
 * Any function here, idem_close() included, may be called from inside a callback.
 */
#define IDEM_READ 1
#define IDEM_WRITE 2

struct idem_host {
    void *data;
    /* Watch fd for these events; again for a change; 0 to stop. 0, or -1 on failure. */
    int (*watch)(void *data, int fd, int events);
    /* Call idem_timeout() once, in ms (0: before the loop sleeps again); it replaces the
       timer armed before; negative disarms it. Leases run on while the machine is suspended:
       better a clock that counts that. */
    void (*timer)(void *data, int64_t ms);
};

int idem_open_on(const char *url, const struct idem_options *options, const struct idem_host *host,
                 struct idem **ret, struct idem_error *err);
void idem_ready(struct idem *h, int fd, int events);
void idem_timeout(struct idem *h);

/* Drops outstanding callbacks: none runs after this. */
void idem_close(struct idem *h);

/*
 * A policy that was merged with the settings and checked. Owned by the caller; it may outlive the
 * handle, which may be NULL if there are no settings.
 */
struct idem_guard;
int idem_guard_new(const struct idem *h, const struct idem_policy *policy, struct idem_guard **ret,
                   struct idem_error *err);
void idem_guard_free(struct idem_guard *guard);

/* The merged policy. Every field is set but name, preset, key_fn and the expressions; result_max
   under mode=lock, which keeps no result; and fingerprint, if keys are computed and no layer sets
   it. Borrowed from the guard. */
const struct idem_policy *idem_guard_policy(const struct idem_guard *guard);

/* Arguments of one call. */

struct idem_args {
    const void *key; /* or from the policy's key_fn, or made of the members below */
    size_t key_len;
    const void *scope; /* the caller's identity, not empty; overrides the policy's */
    size_t scope_len;
    const void *json; /* the arguments, an object: its members are the variables of expressions.
                         Otherwise it is the fingerprint of a literal key, canonical (RFC 8785) */
    size_t json_len;
    const void *fingerprint; /* bytes that must be equal when the key is used again; hashed here */
    size_t fingerprint_len;
    const void *path; /* key_kind parameters: the requested path */
    size_t path_len;
    const void *serial, *credential; /* key_kind serial */
    size_t serial_len, credential_len;
    const void *bind; /* tokens: the value that it is issued for, and must be used with */
    size_t bind_len;
    const char *label;              /* shown to operators: an order number, a trace id */
    const struct idem_policy *with; /* this call's own values, before the policy's */
    bool probe;                     /* take an uncertain record over, to find out */
    void *data;                     /* for key_fn */
};

/* The blocking call: around advice. */

enum idem_result {
    IDEM_RESULT_DONE,    /* it happened */
    IDEM_RESULT_RETRY,   /* it did not happen; trying again may help: on_failure decides */
    IDEM_RESULT_FINAL,   /* it did not happen and never will: kept, as under on_failure=keep */
    IDEM_RESULT_UNKNOWN, /* it may have happened: recover decides */
};

/* The run context: the function reads its input here and sets its result. Valid while it runs. */
struct idem_run;
typedef enum idem_result idem_fn(struct idem_run *run, void *data);

const void *idem_run_key(const struct idem_run *run, size_t *ret_len);
uint32_t idem_run_attempt(const struct idem_run *run); /* the fencing number */
void *idem_run_data(const struct idem_run *run);       /* idem_args.data */

/* True for a prober's run: first find out if the operation happened. */
bool idem_run_probing(const struct idem_run *run);

/* True once the lease was lost or run_max is over: stop, another caller may run. */
bool idem_run_cancelled(const struct idem_run *run);

/* Sets the result; copied. The last call wins. 0, IDEM_E_NOMEM, or IDEM_E_INVALID for a length
   without bytes. */
int idem_run_set_result(struct idem_run *run, const void *bytes, size_t len);
void idem_run_set_status(struct idem_run *run, int32_t status);
void idem_run_set_reason(struct idem_run *run, const char *reason);
/* With IDEM_RESULT_RETRY under on_failure=retry: the delay before the next run, instead of the
   back-off. A value below 1 is ignored. */
void idem_run_set_delay(struct idem_run *run, int64_t ms);

enum idem_finish {
    IDEM_FINISH_NONE,    /* it did not run here */
    IDEM_FINISH_STORED,  /* the function's outcome is stored */
    IDEM_FINISH_LOST,    /* another owner took over meanwhile; nothing was stored */
    IDEM_FINISH_UNKNOWN, /* the store did not acknowledge it within finish_timeout */
};

struct idem_outcome {
    enum idem_verdict verdict;
    enum idem_finish finish; /* with IDEM_RUN */
    enum idem_result said;   /* with IDEM_RUN: the function's return value */
    bool unguarded;          /* the store was down and on_store_error=open */
    bool last;               /* with IDEM_RUN: one that fails is not run again */
    bool has_result;
    bool result_kept; /* with IDEM_RUN: see idem_claim_result_kept() */
    int32_t status;
    uint32_t attempt;
    int64_t retry_after_ms; /* with IDEM_BUSY; with IDEM_RUN that is to be tried again, when */
    void *result;           /* owned: idem_outcome_release() */
    size_t result_len;
    char *reason;      /* owned; NULL if none */
    char key_hash[65]; /* the name of the record in logs */
};

void idem_outcome_release(struct idem_outcome *outcome);

/*
 * Computes the key, claims it, runs fn, renews the lease meanwhile, stores the result or records
 * the failure. Returns 0 with the outcome, or a negative code if nothing was run. Blocks as long as
 * fn and, as a duplicate, up to `wait`.
 */
int idem_call(struct idem *h, const struct idem_guard *guard, const struct idem_args *args,
              idem_fn *fn, void *data, struct idem_outcome *ret, struct idem_error *err);

/* Beneath it: claims on the caller's loop. */

struct idem_claim;

struct idem_answer {
    enum idem_verdict verdict;
    enum idem_state state; /* of the record; distinguishes a running BUSY from a failed one */
    bool has_result;
    bool unguarded;
    int32_t status;
    uint32_t attempt;
    int64_t retry_after_ms;
    const void *result; /* borrowed until the callback returns */
    size_t result_len;
    const char *reason;
    size_t reason_len;
};

/* rc is 0 with a verdict, or a negative code with err. */
typedef void idem_claim_cb(struct idem_claim *claim, int rc, const struct idem_answer *answer,
                           const struct idem_error *err, void *data);

/* rc is 0 (acknowledged), or a negative code; `lost` means that another owner took over. */
typedef void idem_finish_cb(struct idem_claim *claim, int rc, bool lost,
                            const struct idem_error *err, void *data);

/*
 * Claims; a duplicate is parked up to `wait`. After IDEM_RUN the lease is renewed until the finish;
 * the callback set by idem_claim_on_lost() is called once if renewing ends before.
 */
int idem_claim_new(struct idem *h, const struct idem_guard *guard, const struct idem_args *args,
                   idem_claim_cb *cb, void *data, struct idem_claim **ret, struct idem_error *err);

enum idem_end {
    IDEM_END_TAKEN = 1, /* another owner took over, or an operator settled or forgot it */
    IDEM_END_LEASE,     /* recover=rerun, and the lease is over by our own clock */
    IDEM_END_RUN_MAX,   /* it took longer than run_max; the lease is not renewed any more */
};
typedef void idem_lost_cb(struct idem_claim *claim, enum idem_end why, void *data);
void idem_claim_on_lost(struct idem_claim *claim, idem_lost_cb *lost, void *data);

/* Exactly one finish per claim, after IDEM_RUN or IDEM_PROBE, and none for an unguarded one
   (IDEM_E_INVALID); each is tried again for finish_timeout. Result, reason and callback may be
   NULL: without a result none is kept. */
int idem_claim_done(struct idem_claim *claim, int32_t status, const void *result, size_t len,
                    idem_finish_cb *cb, void *data);
int idem_claim_fail(struct idem_claim *claim, int32_t status, const char *reason,
                    const void *result, size_t len, bool final, idem_finish_cb *cb, void *data);
int idem_claim_release(struct idem_claim *claim, idem_finish_cb *cb, void *data);
int idem_claim_unknown(struct idem_claim *claim, const char *reason, idem_finish_cb *cb,
                       void *data);

/*
 * For the callback of a finish that was stored: true if the result is stored with it. It is not
 * stored if none was passed, if the mode is not replay, or if it is longer than result_max. If the
 * store has no room for it (IDEM_E_FULL), the finish is stored without the result, so that an
 * operation that is done never runs again; duplicates get IDEM_DUPLICATE instead of IDEM_REPLAY,
 * and it is counted as IDEM_EVENT_RESULT_DROPPED.
 */
bool idem_claim_result_kept(const struct idem_claim *claim);

/* Renews now; the claim does so by itself at a third of the lease. Not after `lost`, and one at a
   time. A finish meanwhile drops the renewal's callback. */
int idem_claim_renew(struct idem_claim *claim, idem_finish_cb *cb, void *data);

const char *idem_claim_hash(const struct idem_claim *claim);
const void *idem_claim_key(const struct idem_claim *claim, size_t *ret_len);

/*
 * Drops the claim; none of its callbacks runs any more. A claim without a verdict is released in
 * the background by its owner id. A claim with IDEM_RUN that is not finished is left to its lease
 * and `recover`.
 */
void idem_claim_free(struct idem_claim *claim);

/* Operators. */

/* A record is named by prefix, scope and key, or by prefix and the hash that logs show. */
struct idem_name {
    const char *prefix;
    const void *scope; /* NULL: scope none */
    size_t scope_len;
    const void *key;
    size_t key_len;
    const char *hash; /* 64 hex digits, instead of scope and key */
    bool token;       /* the key is a token */
};

struct idem_entry {
    char hash[65];
    char prefix[IDEM_PREFIX_MAX + 1];
    char label[IDEM_LABEL_MAX + 1];
    char reason[IDEM_REASON_MAX + 1];
    enum idem_state state;
    bool uncertain; /* running, lease over */
    bool locked;    /* run or done by mode=lock */
    bool final;     /* failed for good */
    bool has_result;
    uint32_t attempt;
    int32_t status;
    int64_t left_ms;    /* of the lease; until a failed one is due */
    int64_t created_ms; /* since 1970, by the store's clock */
    int64_t changed_ms;
    int64_t expires_ms;
    size_t result_len;
    void *result; /* idem_lookup() only; owned: idem_entry_release() */
};

/* IDEM_E_ABSENT if there is none. */
int idem_lookup(struct idem *h, const struct idem_name *name, struct idem_entry *ret,
                struct idem_error *err);
void idem_entry_release(struct idem_entry *entry);

struct idem_filter {
    const char *prefix;    /* begins with; NULL: all */
    enum idem_state state; /* IDEM_ABSENT: any */
    bool uncertain;        /* running with its lease over, only */
    int64_t since_ms;      /* changed at or after */
};

/*
 * Lists at most `max` entries in the order of their names. `cursor` starts as zeros; each call
 * moves it on, and sets .end after the last entry. A list is not one snapshot: a change meanwhile
 * may be seen or missed. Without a filter (NULL) it lists all. Records that cannot be read are
 * listed by their name and the reason alone, regardless of `since_ms`.
 */
struct idem_cursor {
    bool end;
    size_t len;
    unsigned char at[IDEM_PREFIX_MAX + 32];
};
int idem_list(struct idem *h, const struct idem_filter *filter, struct idem_cursor *cursor,
              struct idem_entry *ret, size_t max, size_t *ret_n, struct idem_error *err);

/* Sets the outcome of an uncertain or failed record. A failed one runs again only while its policy
   has attempts left. */
struct idem_settlement {
    enum idem_state to; /* IDEM_DONE or IDEM_FAILED */
    int32_t status;
    const char *reason;
    bool force;           /* although a lease is live */
    uint32_t attempt;     /* only if it is still at this attempt; 0: any */
    int64_t ttl_s;        /* default 24 h */
    enum idem_state from; /* only in this state, else IDEM_E_SETTLED: of two operators that see it
                             uncertain (IDEM_RUNNING), one settles it; IDEM_ABSENT: any */
};
int idem_settle(struct idem *h, const struct idem_name *name, const struct idem_settlement *how,
                struct idem_error *err);

/* Settles every record that the filter (may be NULL: all) selects and that may be settled; `each`
   (may be NULL) sees them first and returns false to leave one out. */
int idem_settle_all(struct idem *h, const struct idem_filter *filter,
                    const struct idem_settlement *how,
                    bool (*each)(const struct idem_entry *entry, void *data), void *data,
                    size_t *ret_n, struct idem_error *err);

int idem_forget(struct idem *h, const struct idem_name *name, bool force, struct idem_error *err);

enum idem_event {
    IDEM_EVENT_RUN,
    IDEM_EVENT_REPLAY,
    IDEM_EVENT_DUPLICATE,
    IDEM_EVENT_BUSY,
    IDEM_EVENT_MISMATCH,
    IDEM_EVENT_UNCERTAIN,
    IDEM_EVENT_DEAD,
    IDEM_EVENT_NO_TOKEN,
    IDEM_EVENT_PROBE,
    IDEM_EVENT_SUPERSEDED, /* a finish or renewal by an owner that had been superseded */
    IDEM_EVENT_LEASE_LOST, /* a run that was cancelled: its lease was lost, or run_max over */
    IDEM_EVENT_UNSTORED,   /* a finish the store did not acknowledge in time */
    IDEM_EVENT_UNGUARDED,  /* run although the store was down */
    IDEM_EVENT_STORE_ERROR,
    IDEM_EVENT_SIGNATURE_INCOMPLETE, /* requests whose signature was refused, by reason */
    IDEM_EVENT_SIGNATURE_STALE,
    IDEM_EVENT_SIGNATURE_WRONG,
    IDEM_EVENT_NONCE_REUSED,
    IDEM_EVENT_RESULT_DROPPED, /* a finish was stored without its result: there was no room for it
                                */
    IDEM_EVENT__COUNT
};
const char *idem_event_name(enum idem_event event);

struct idem_stats {
    uint64_t issued, running, uncertain, done, failed; /* records now */
    uint64_t events[IDEM_EVENT__COUNT];                /* since the store was created */
    uint64_t bytes_used, bytes_max;                    /* 0 if the store cannot report it */
};
int idem_stats(struct idem *h, struct idem_stats *ret, struct idem_error *err);

/*
 * Tokens, for policies with key = token: keys that the server issues, each for one operation. A
 * token is issued to args->scope (or the policy's), and for args->bind if that is set (and then not
 * empty). A call with the same scope and bind can use it: it is then the key of the call. It lives
 * for the policy's token_ttl.
 */
#define IDEM_TOKEN_LEN 32
int idem_token_issue(struct idem *h, const struct idem_guard *guard, const struct idem_args *args,
                     char token[IDEM_TOKEN_LEN + 1], struct idem_error *err);

/* The same on the caller's loop. rc is 0 with the token, or a negative code with err. It may be
   freed at any time, also inside its callback; if it is freed before, the callback is not
   called. */
struct idem_issue;
typedef void idem_issue_cb(struct idem_issue *issue, int rc, const char *token,
                           const struct idem_error *err, void *data);
int idem_issue_new(struct idem *h, const struct idem_guard *guard, const struct idem_args *args,
                   idem_issue_cb *cb, void *data, struct idem_issue **ret, struct idem_error *err);
void idem_issue_free(struct idem_issue *issue);

/*
 * Signed requests: proof that the holder of a secret has sent this request, now, and once. A signer
 * has the secrets and the rules, and both ends use one: idem_verify_request() accepts the fields
 * that idem_sign_request() makes. sign.md has the forms, the file of secrets and test vectors.
 *
 * A signer is immutable and may be shared by all threads. Freeing it wipes its secrets.
 */
#define IDEM_KEY_ID_MAX 128
#define IDEM_NONCE_MAX 255

enum idem_sign_form {
    IDEM_SIGN_RFC9421 = 1, /* HTTP Message Signatures, with Content-Digest (RFC 9530) */
    IDEM_SIGN_CLASSIC,     /* X-Key-Id, X-Timestamp, X-Nonce, X-Sign */
};

enum idem_sequence {
    IDEM_SEQUENCE_OFF = 1,     /* a nonce is never seen twice */
    IDEM_SEQUENCE_INCREASING,  /* it is a number, higher than all before it; no timestamp needed */
    IDEM_SEQUENCE_CONSECUTIVE, /* and higher by one */
};

struct idem_sign_rules {
    const char *secret_file;  /* required; only its owner may read it */
    enum idem_sign_form form; /* default: rfc9421 */
    int64_t window_ms;        /* how far a timestamp may be from now, 1 s..1 d; default 60 s */
    const char *headers;      /* names, parted by blanks or commas: must be signed, too; with
                                 rfc9421 derived components as well (@authority) */
    enum idem_sequence sequence;
};

struct idem_signer;
int idem_signer_new(const struct idem_sign_rules *rules, struct idem_signer **ret,
                    struct idem_error *err);
void idem_signer_free(struct idem_signer *signer);

struct idem_field {
    const char *name, *value;
};

/* A request as it is sent. */
struct idem_request {
    const char *method;
    const char *scheme;    /* NULL: "https"; for @scheme and @target-uri */
    const char *authority; /* host[:port]; may be NULL if it is not signed */
    const char *target;    /* path and query: "/orders?shop=7" */
    const struct idem_field *fields;
    size_t fields_n;
    const void *body;
    size_t body_len;
};

/* The signing key, the nonce and the time. */
struct idem_sign_with {
    const char *key_id; /* required */
    const char *nonce;  /* the next number, where there is a sequence; else NULL: 128 random bits */
    int64_t time_ms;    /* since 1970; 0: now; IDEM_NONE: without, where there is a sequence */
};

/* The fields to send with the request; idem_signature_release() frees it. */
struct idem_signature {
    struct idem_field fields[4];
    size_t fields_n;
    char *signed_text; /* the text that was signed */
};
int idem_sign_request(const struct idem_signer *signer, const struct idem_sign_with *with,
                      const struct idem_request *request, struct idem_signature *ret,
                      struct idem_error *err);
void idem_signature_release(struct idem_signature *signature);

enum idem_proof {
    IDEM_PROOF_GOOD = 1,
    IDEM_PROOF_INCOMPLETE, /* a part is missing or cannot be read */
    IDEM_PROOF_STALE,      /* its timestamp is too far from now */
    IDEM_PROOF_WRONG,      /* it was not made with a secret of that key id for this request */
    IDEM_PROOF_REUSED,     /* its nonce was used before, or its number is not the next */
};
const char *idem_proof_name(enum idem_proof proof);

struct idem_verified {
    enum idem_proof proof;
    char key_id[IDEM_KEY_ID_MAX + 1]; /* as the request states it; proven with IDEM_PROOF_GOOD */
    char nonce[IDEM_NONCE_MAX + 1];
    int64_t time_ms;   /* of the request; 0: it has none */
    int64_t now_ms;    /* the time with which it was compared */
    int64_t last;      /* with a sequence and a store: the highest number that was accepted */
    char detail[256];  /* the fault, in words fit for the sender */
    char *signed_text; /* the text that should have been signed; NULL if it is not known; owned:
                          idem_verified_release() */
};

/*
 * Checks in this order: the parts are present, the timestamp is current, the signature is right;
 * and last, that the nonce is new, which the store checks and records in one step. The nonce is
 * kept for a day, with a window of more than 12 h for twice the window, so signers that share a
 * store may have different windows up to 12 h. Without a store (h is NULL) the nonce is not
 * checked. Returns 0 with the proof, or a negative code without one: the store could not respond,
 * or no request can look like this one (IDEM_E_INVALID). Then do not accept the request.
 */
int idem_verify_request(struct idem *h, const struct idem_signer *signer,
                        const struct idem_request *request, struct idem_verified *ret,
                        struct idem_error *err);
void idem_verified_release(struct idem_verified *verified);

/*
 * SQL: once, inside your own transaction. The row that records the outcome commits with your own
 * rows or not at all, so that no crash can separate them. You supply your own connection, with your
 * transaction open; the library runs its statements on it and waits for the results. It never
 * begins, commits, rolls back or closes, but for idem_tx_call(), which does all but close. sql.md
 * lists each statement, and shows the same in other languages.
 *
 *     begin
 *     rc = idem_tx_once(idem_sql_pg(conn), guard, &args, &answer, &err);
 *     rc < 0: roll back (IDEM_E_RETRY_TX, IDEM_E_TX_LOST: and begin anew)
 *     answer.verdict == IDEM_TX_FIRST: do it, idem_tx_result(), commit
 *     otherwise: roll back; it was done before
 *
 * The tables are made by `idem migrate` or idem_sql_migrate(). A connection is used by one thread
 * at a time, as its own library has it. Text is UTF-8; with PostgreSQL it is in the connection's
 * client_encoding.
 */
struct pg_conn;  /* libpq's PGconn */
struct st_mysql; /* MariaDB Connector/C's MYSQL */
struct sqlite3;
struct idem_tx_table;

enum idem_sql_kind { IDEM_SQL_POSTGRES = 1, IDEM_SQL_MYSQL, IDEM_SQL_SQLITE };

/* A connection of the caller's, borrowed. A kind that is not in this build is IDEM_E_INVALID. */
struct idem_sql {
    enum idem_sql_kind kind;
    union {
        struct pg_conn *pg;
        struct st_mysql *mysql;
        struct sqlite3 *sqlite;
    } at;
    const struct idem_tx_table *table; /* where guards keep their rows; NULL: in idem_tx */
};

struct idem_sql idem_sql_pg(struct pg_conn *conn);
struct idem_sql idem_sql_mysql(struct st_mysql *conn);
struct idem_sql idem_sql_sqlite(struct sqlite3 *conn);

/*
 * For programs that have no connection yet: one by URL, which is that of a store ("postgres:",
 * "mysql:": stores.md) or "sqlite:PATH". It is the caller's, with the engine's own handle in it,
 * and is ended by idem_sql_close(). Texts are UTF-8. With MySQL, rows that a statement matched
 * count as changed (CLIENT_FOUND_ROWS); with SQLite, a lock is waited for 5 s. Blocks.
 */
int idem_sql_open(const char *url, struct idem_sql *ret, struct idem_error *err);
void idem_sql_close(struct idem_sql conn);

/* A value of a statement, or of a row that was read; borrowed. Zero is NULL. */
enum idem_sql_type { IDEM_SQL_NULL, IDEM_SQL_INT, IDEM_SQL_TEXT, IDEM_SQL_BYTES };

struct idem_sql_value {
    enum idem_sql_type type;
    int64_t number;
    const void *at;
    size_t len;
};

struct idem_sql_value idem_sql_null(void);
struct idem_sql_value idem_sql_int(int64_t number);
struct idem_sql_value idem_sql_text(const char *text); /* NULL where text is */
struct idem_sql_value idem_sql_bytes(const void *bytes, size_t len);

/*
 * Makes the tables that are missing, or brings them to this version; with PostgreSQL and MySQL the
 * functions for other languages, too. May be run twice, and by two machines at once. A version
 * newer than this program's is IDEM_E_VERSION. No transaction may be open.
 */
int idem_sql_migrate(struct idem_sql conn, struct idem_error *err);

enum idem_tx_verdict {
    IDEM_TX_FIRST = 1, /* yours to do, in this transaction */
    IDEM_TX_DUPLICATE, /* it was done before, and is committed, or is by this transaction's end */
    IDEM_TX_MISMATCH,  /* the key was used before with another fingerprint */
    IDEM_TX_REFUSED,   /* of idem_tx_call(): the function refused; nothing was done */
    IDEM_TX_HAPPENED,  /* of idem_tx_outcome(): it is committed */
    IDEM_TX_NEVER,     /* of idem_tx_outcome(): it is not, and will not be any more */
};
const char *idem_tx_verdict_name(enum idem_tx_verdict verdict);

struct idem_tx_answer {
    enum idem_tx_verdict verdict;
    bool has_result;
    int32_t status;
    int said;     /* with IDEM_TX_REFUSED: the function's return value */
    void *result; /* owned: idem_tx_answer_release() */
    size_t result_len;
    char key_hash[65]; /* the name of the row in logs */
};
void idem_tx_answer_release(struct idem_tx_answer *answer);

/*
 * The guard, as the first statement of a transaction, or as early as possible. The key, its scope,
 * prefix, fingerprint and ttl are made of guard and args as everywhere; mode=lock and key=token are
 * IDEM_E_INVALID. It waits for another transaction with the same key, as long as the server's own
 * limit for locks (lock_timeout, innodb_lock_wait_timeout, busy_timeout) allows. With SQLite the
 * transaction must have been begun with BEGIN IMMEDIATE.
 */
int idem_tx_once(struct idem_sql conn, const struct idem_guard *guard, const struct idem_args *args,
                 struct idem_tx_answer *ret, struct idem_error *err);

/* After IDEM_TX_FIRST, in the same transaction, once: stores the result for duplicates. The
   result may be NULL; one longer than result_max, or under mode=reject, is not kept, only the
   status is. */
int idem_tx_result(struct idem_sql conn, const struct idem_guard *guard,
                   const struct idem_args *args, int32_t status, const void *result, size_t len,
                   struct idem_error *err);

/*
 * Returns the outcome of a transaction whose COMMIT had no response. Call it on another connection
 * without an open transaction; this call opens one and rolls it back. If the transaction is still
 * about to commit, it waits at most wait_ms (0: as long as the server's own limit allows), then
 * returns IDEM_E_UNKNOWN. IDEM_TX_HAPPENED comes with the stored result. IDEM_TX_NEVER: its row
 * does not exist, and no transaction is left that could still commit it; this holds for every
 * transaction whose idem_tx_once() had returned, within its ttl. IDEM_TX_MISMATCH: the key was used
 * with another fingerprint. With SQLite its own busy_timeout is the limit in every case.
 */
int idem_tx_outcome(struct idem_sql conn, const struct idem_guard *guard,
                    const struct idem_args *args, int64_t wait_ms, struct idem_tx_answer *ret,
                    struct idem_error *err);

/*
 * The whole in one call: begin, guard, fn, result, commit. fn returns 0 to commit; IDEM_E_RETRY_TX
 * or IDEM_E_TX_LOST, as a function here or idem_sql_failure() returned it, to begin all of it anew;
 * another negative code to roll it back and return that code; a positive number of its own to roll
 * it back, which is reported as IDEM_TX_REFUSED. A COMMIT without a response is IDEM_E_UNKNOWN:
 * connect anew and call idem_tx_outcome(). No transaction may be open before. fn must not begin or
 * end one: its work in another is rolled back, and IDEM_E_INVALID.
 */
struct idem_tx;
typedef int idem_tx_fn(struct idem_tx *tx, void *data);

struct idem_sql idem_tx_conn(const struct idem_tx *tx);
unsigned idem_tx_attempt(const struct idem_tx *tx); /* 1, 2, ...: each is a new transaction */
void *idem_tx_data(const struct idem_tx *tx);       /* idem_args.data */
/* Sets the result, as idem_tx_result() does; copied, and the last call wins. 0, IDEM_E_NOMEM, or
   IDEM_E_INVALID for a length without bytes. Without it, status 0 and no result. */
int idem_tx_keep(struct idem_tx *tx, int32_t status, const void *result, size_t len);

enum idem_isolation {
    IDEM_ISOLATION_READ_COMMITTED = 1,
    IDEM_ISOLATION_REPEATABLE_READ,
    IDEM_ISOLATION_SERIALIZABLE,
};

struct idem_tx_options {
    enum idem_isolation isolation; /* default: the connection's; SQLite has only one */
    unsigned attempts;             /* transactions at most; default 10 */
    int64_t backoff_min_ms;        /* between them, growing, with jitter; default 5 ms */
    int64_t backoff_max_ms;        /* default 500 ms */
};

/* The options may be NULL. */
int idem_tx_call(struct idem_sql conn, const struct idem_guard *guard, const struct idem_args *args,
                 const struct idem_tx_options *options, idem_tx_fn *fn, void *data,
                 struct idem_tx_answer *ret, struct idem_error *err);

/*
 * Returns the meaning of a failed statement of your own for its transaction: IDEM_E_RETRY_TX,
 * IDEM_E_TX_LOST, or IDEM_E_REFUSED, IDEM_E_FULL and so on. Call it right after the statement.
 * `sqlstate` is PQresultErrorField(result, PG_DIAG_SQLSTATE), and NULL for the others. A connection
 * that was lost is IDEM_E_UNKNOWN. For a COMMIT of your own only IDEM_E_RETRY_TX and IDEM_E_TX_LOST
 * mean that it did not happen; after another code, call idem_tx_outcome().
 */
int idem_sql_failure(struct idem_sql conn, const char *sqlstate, struct idem_error *err);

/*
 * A table of your own for the rows of guards: the key in one column, the caller's identity in
 * another, both together (or the key alone) under a unique index. The table itself takes the place
 * of the prefix. With key = serial the columns contain the serial number and the credential,
 * otherwise the key and the scope: a value that is not set must have no column, and one that is set
 * must have one. The rest is stored if there is a column for it. Rows do not expire.
 *
 * Columns that turn two keys into one (by collation, blanks, length or type) are found when they do
 * so: IDEM_E_INVALID, never a false duplicate. The same is true of a result that its column does
 * not return unchanged, and of a row that is in the way and cannot be seen.
 */
struct idem_tx_columns {
    const char *table; /* required; "shop.dedup" is one in a schema */
    const char *key;   /* required */
    const char *source;
    bool bytes;              /* both are columns of bytes (bytea, VARBINARY, BLOB); else of text or
                                of a number */
    const char *fingerprint; /* text, at least 75 characters */
    const char *status;      /* an integer */
    const char *result;      /* bytes, or text if all results are such */
    const char *created;     /* a time, by the server's clock */
};

/* Looks at the table: the columns and the unique index are there, and (MySQL) its engine has
   transactions. It may be used on every connection to that database (.table of struct idem_sql),
   and is immutable. */
int idem_tx_table_new(struct idem_sql conn, const struct idem_tx_columns *columns,
                      struct idem_tx_table **ret, struct idem_error *err);
void idem_tx_table_free(struct idem_tx_table *table);

/*
 * Recipes for tables of your own: each makes a statement safe to repeat. Each runs on your
 * connection, in a transaction or (but for locks) without one, and is right at each isolation
 * level. A row is named by a unique key, by all of its columns; if a key turns out not to be
 * unique, and matches more than one row, that is IDEM_E_INVALID, and yours to roll back. Names are
 * quoted, so that they are taken as they are written; "shop.orders" is a table in a schema. Values
 * are never part of a statement's text.
 */
struct idem_sql_column {
    const char *name;
    struct idem_sql_value value;
};

struct idem_sql_row {
    const char *table;
    const struct idem_sql_column *key;
    size_t key_n;
    const struct idem_sql_column *values; /* the other columns to write, if any */
    size_t values_n;
};

enum idem_sql_verdict {
    IDEM_SQL_INSERTED = 1,
    IDEM_SQL_ALREADY_THERE,
    IDEM_SQL_UPDATED,
    IDEM_SQL_LOCKED,
    IDEM_SQL_BUSY,    /* another transaction has locked it */
    IDEM_SQL_SKIPPED, /* it does not exist, or another transaction has locked it */
    IDEM_SQL_WON,
    IDEM_SQL_STALE,
    IDEM_SQL_GONE, /* there is no such row */
    IDEM_SQL_MOVED,
    IDEM_SQL_ALREADY,
    IDEM_SQL_FORBIDDEN,
    IDEM_SQL_DELETED,
    IDEM_SQL_ALREADY_GONE,
};
const char *idem_sql_verdict_name(enum idem_sql_verdict verdict);

/* Inserts a row unless its key is there: IDEM_SQL_INSERTED or IDEM_SQL_ALREADY_THERE. A conflict
   with another unique key is an error, and so is every other. */
int idem_sql_insert(struct idem_sql conn, const struct idem_sql_row *row,
                    enum idem_sql_verdict *ret, struct idem_error *err);

/* Inserts the row, or writes its values into the existing row: IDEM_SQL_INSERTED or
   IDEM_SQL_UPDATED. */
int idem_sql_upsert(struct idem_sql conn, const struct idem_sql_row *row,
                    enum idem_sql_verdict *ret, struct idem_error *err);

/* IDEM_SQL_DELETED or IDEM_SQL_ALREADY_GONE. */
int idem_sql_delete(struct idem_sql conn, const struct idem_sql_row *row,
                    enum idem_sql_verdict *ret, struct idem_error *err);

/* The columns of a locked row, as they are now; idem_sql_cells_release(). */
struct idem_sql_cells {
    size_t n;
    struct idem_sql_value *at; /* texts and bytes end in a NUL that is not counted; numbers that
                                  are beyond int64_t, or not whole, are texts */
};
void idem_sql_cells_release(struct idem_sql_cells *cells);

#define IDEM_SKIP_LOCKED (-2)

/*
 * Locks a row until the end of the transaction: IDEM_SQL_LOCKED, with n columns of it in *ret_cells
 * (both may be 0 and NULL), or IDEM_SQL_GONE. Check the values read here, then write: a SELECT of
 * your own may show an older row. wait_ms: 0 waits as long as the server's own limit allows; more:
 * so long (MySQL: in whole seconds), then IDEM_SQL_BUSY; IDEM_NONE: not at all, IDEM_SQL_BUSY at
 * once; IDEM_SKIP_LOCKED: IDEM_SQL_SKIPPED, both for a missing and for a locked row. With all of
 * them the transaction goes on.
 */
int idem_sql_lock(struct idem_sql conn, const struct idem_sql_row *row, int64_t wait_ms,
                  const char *const *columns, size_t n, struct idem_sql_cells *ret_cells,
                  enum idem_sql_verdict *ret, struct idem_error *err);

/* Writes the row's values, and version + 1, if the row still has that version: IDEM_SQL_WON,
   IDEM_SQL_STALE or IDEM_SQL_GONE; *ret_present (may be NULL) is its present version. A version
   that is NULL or no whole number, or whose column is full, is IDEM_E_INVALID. */
int idem_sql_update_version(struct idem_sql conn, const struct idem_sql_row *row,
                            const char *column, int64_t version, int64_t *ret_present,
                            enum idem_sql_verdict *ret, struct idem_error *err);

/*
 * The moves that a state may make, declared once: "unpaid paid shipped done cancelled", parted by
 * blanks, the state that a row begins with first; and from where to where. Refused are states that
 * cannot be reached and moves of states that are not declared. At most 64 states. Immutable, and
 * may be shared by threads.
 */
struct idem_step {
    const char *from, *to;
};
struct idem_moves;
int idem_moves_new(const char *states, const struct idem_step *moves, size_t n,
                   struct idem_moves **ret, struct idem_error *err);
void idem_moves_free(struct idem_moves *moves);

/*
 * Moves a row from one state to another, and writes its values with it: IDEM_SQL_MOVED;
 * IDEM_SQL_ALREADY: its state is `to`, or one that it can have reached only through `to` (but for a
 * move back, to a state that a row in `from` has had already: then `to` only); IDEM_SQL_FORBIDDEN:
 * it has another state; IDEM_SQL_GONE. *ret_state (may be NULL) is its present state, owned by the
 * moves; NULL if it is none of them, or there is no row. A move that is not declared is
 * IDEM_E_INVALID.
 */
int idem_sql_move(struct idem_sql conn, const struct idem_sql_row *row, const char *column,
                  const struct idem_moves *moves, const char *from, const char *to,
                  const char **ret_state, enum idem_sql_verdict *ret, struct idem_error *err);

/*
 * Messages: each handled once, however often a broker delivers it. For people with a client of
 * their own, whatever the broker; `idem consume` brings its own for RabbitMQ and Redis Streams.
 * queue.md has the whole.
 *
 *     switch (idem_consume(h, guard, &message, handle, NULL, &consumed, &err) < 0
 *                 ? IDEM_CONSUME_RETRY_LATER : consumed.disposal) {
 *     case IDEM_CONSUME_ACK: acknowledge it
 *     case IDEM_CONSUME_RETRY_LATER: have it delivered again in consumed.retry_ms
 *     case IDEM_CONSUME_DEAD: put it among your dead letters, and then acknowledge it
 *     }
 */
struct idem_message {
    const void *body;
    size_t body_len;
    const char *id;    /* the broker's message id; may be NULL */
    const char *queue; /* its source; may be NULL */
    const struct idem_field *headers;
    size_t headers_n;
    const struct idem_field *properties; /* besides the id */
    size_t properties_n;
    const void *key; /* under key = literal; NULL: the id is the key */
    size_t key_len;
    const char *label; /* shown to operators; may be NULL */
};

enum idem_disposal {
    IDEM_CONSUME_ACK = 1,     /* it is done, now or before */
    IDEM_CONSUME_RETRY_LATER, /* it is not done, or that is not known */
    IDEM_CONSUME_DEAD,        /* it never will be: no attempts left, refused, mismatch, no key */
};

struct idem_consumed {
    enum idem_disposal disposal;
    int64_t retry_ms;          /* with IDEM_CONSUME_RETRY_LATER */
    enum idem_verdict verdict; /* 0: the store, or the key, was not available: see code */
    enum idem_result said;     /* with IDEM_RUN: the function's return value */
    int code;                  /* 0, or the reason why there is no verdict */
    int32_t status;
    uint32_t attempt;
    int64_t took_ms; /* the function */
    char trace[72];  /* for logs: of its header `traceparent`, or its id; key_hash where that is the
                        key; "-": it has none of them */
    char key_hash[65]; /* the name of the record in logs; empty: it has no key */
    char reason[256];  /* for people; empty: none */
};

/*
 * Blocks as long as fn does. The guard's policy is best one with preset = queue. Key expressions
 * read {body, headers, properties, queue}; the id is the property message_id. With a key that the
 * sender chose (literal, id), another body under the same key is IDEM_CONSUME_DEAD. Returns 0 also
 * if the store was not reached, which is IDEM_CONSUME_RETRY_LATER; a negative code is a mistake of
 * the caller's or IDEM_E_NOMEM, and nothing was run.
 */
int idem_consume(struct idem *h, const struct idem_guard *guard, const struct idem_message *message,
                 idem_fn *fn, void *data, struct idem_consumed *ret, struct idem_error *err);

/*
 * Identifiers. UUIDs after RFC 9562, as text with a NUL: version 7 is in order
 * of time within a process, also over a clock that goes back and in a forked
 * child; version 4 is random, for tokens.
 */
#define IDEM_UUID_LEN 36
int idem_uuid7(char out[IDEM_UUID_LEN + 1], struct idem_error *err);
int idem_uuid4(char out[IDEM_UUID_LEN + 1], struct idem_error *err);

/*
 * Snowflakes: numbers of 63 bits that grow with time (41 bits of ms since 2020, 10 bits of worker,
 * 12 bits of sequence). The worker id is leased in the store, under a name (NULL: "idem:"), and the
 * store remembers which numbers were given out, so that no number is given out twice even if
 * processes die or clocks jump. For blocking handles, from any thread; it must be freed before the
 * handle.
 */
struct idem_snowflake;
int idem_snowflake_new(struct idem *h, const char *name, struct idem_snowflake **ret,
                       struct idem_error *err);
int idem_snowflake_next(struct idem_snowflake *s, int64_t *ret, struct idem_error *err);
void idem_snowflake_free(struct idem_snowflake *s);

/* The store's clock, in ms since 1970: the time by which expiry is judged, which never goes back;
   and the date as the clock is set now, for schedules. */
int idem_time(struct idem *h, int64_t *ret_ms, struct idem_error *err);
int idem_date(struct idem *h, int64_t *ret_ms, struct idem_error *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
