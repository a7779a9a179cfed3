/*
 * Histories: many processes write each operation on a key to a log as it
 * happens; the log is judged afterwards by the invariants of the design
 * (section 2).
 *
 * THE LOG is text, one event a line, appended by any number of processes in any
 * language; a line is one write() to a file opened with O_APPEND:
 *
 *     TIME ACTOR KEY EVENT [name=value]... .
 *
 * TIME   CLOCK_MONOTONIC in nanoseconds: of the moment before an operation is
 *        sent, and of the moment after it was answered. All writers of one log
 *        share one clock (Python: time.monotonic_ns()).
 * ACTOR  the writer: a pid, a worker's name.
 * KEY    the key with its scope, which name one record.
 * EVENT  and its names, below. Names that begin with x- are for people.
 * " ."   ends the line: a line without it was torn by a crash and is left out.
 *        So write the event before an operation is sent, and its outcome
 *        afterwards.
 *
 * Words hold neither blanks nor '='; blank lines and lines that begin with '#'
 * are skipped. A shell writes with `history-check --append LOG ACTOR KEY EVENT
 * [name=value]...`, C with history_write(), Python with
 *
 *     os.write(fd, f"{time.monotonic_ns()} {pid} {key} {event} {names} .\n".encode())
 *
 * | event    | names                                   | meaning                         |
 * |----------|-----------------------------------------|---------------------------------|
 * | policy   | mode= recover= lease_ms= [effects=once] | of KEY, or of all where KEY is *|
 * | claim    | owner= [mode= recover= lease_ms= fp=]   | a claim is about to be sent     |
 * | claimed  | owner= verdict= [attempt= digest=]      | its answer: a verdict of idem.h,|
 * |          | [unguarded=1]                           | or error; digest= of a replay   |
 * | finish   | owner= said= [digest=]                  | done, fail, release, unknown or |
 * |          |                                         | renew is about to be sent       |
 * | finished | owner= said= ack=                       | its answer: ack, lost or error  |
 * | effect   | owner= [attempt=]                       | the side effect happens         |
 * | enter    | owner=                                  | a critical section (mode=lock)  |
 * | leave    | owner=                                  | ends                            |
 * | expire   |                                         | from now on, what was known of  |
 * |          |                                         | KEY may have expired            |
 * | forget   |                                         | an operator is about to forget  |
 * | forgot   |                                         | it, or has                      |
 * | settle   |                                         | or to settle it, or             |
 * | settled  |                                         | has                             |
 * | crash    |                                         | ACTOR was killed; where KEY is  |
 * |          |                                         | *, whatever ran may be cut off  |
 * | publish  | lane=                                   | a message of KEY is in a queue, |
 * |          |                                         | behind all of its lane before   |
 * | dead     |                                         | it lies among the dead letters  |
 *
 * An owner is the owner id of one claim, whole or its first digits. A claim that
 * is repeated is a second claim line under the same owner. `error` is an answer
 * too: the operation may or may not have happened. fp= is given where
 * fingerprints are comparable. A digest is any word that two results share only
 * if they are the same bytes. unguarded=1: on_store_error=open let it run; the
 * store is not responsible for such a run.
 *
 * THE JUDGE knows of an operation only that it took effect at some moment
 * between being sent and being answered, or, unanswered, at any later moment or
 * never. It reports what no order of these moments can excuse, and nothing else:
 *
 *   1  two owners hold a live lease at one moment, or share an attempt; two
 *      critical sections overlap while the first one's lease is live
 *   2  RUN for a claim that was sent after a done was acknowledged      (not lock)
 *   3  under hold, two RUNs, or two effects, with no fail or release sent between
 *      them                                                            (not lock)
 *   4  a finish acknowledged to an owner that was superseded, or never let in
 *   5  a replay that is not what an acknowledged done stored           (not lock)
 *   6  RUN or a replay for another fingerprint than the one that ran first
 *   7  an effect without RUN, or a second one under the same attempt
 *
 * and, of keys that were published, at the end of the log:
 *
 *   8  a message that is lost: neither an effect nor a dead letter
 *   9  a second effect, with no crash of * between the two; under effects=once, any
 *   10 a first effect before that of a message which was published before it, in its lane
 *
 * Failure modes: a log that cannot be read or understood (a word that is
 * unknown, an answer without its question, a key without a policy) is refused
 * with the line's number; it is never judged in part. No memory: abort.
 */
#ifndef IDEM_TEST_MODEL_HISTORY_H
#define IDEM_TEST_MODEL_HISTORY_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Opens a log for appending, and makes it where there is none. A descriptor, or -1 with errno. */
int history_open(const char *path);

int64_t history_now(void);

/*
 * Appends one event of this process (ACTOR is its pid), at this moment. `names`
 * is a format and may be "". Any number of threads may write. 0, or -1.
 */
int history_write(int fd, const char *key, const char *event, const char *names, ...)
    __attribute__((format(printf, 4, 5)));

/* The same for another actor. */
int history_write_as(int fd, const char *actor, const char *key, const char *event,
                     const char *names);

/* Counts of the log's events: a test requires some, so that it does not pass on an empty log. */
struct history_sum {
    size_t lines, torn, keys;
    size_t claims, runs, replays;
    size_t finishes, acknowledged, lost;
    size_t effects;
};

/*
 * Judges a log. Returns the number of violations, each written to `report` with
 * the key's lines around it; or -1 where the log is unusable, with the reason in
 * `report`. *ret (which may be NULL) is untouched on failure.
 */
int history_check(FILE *log, FILE *report, struct history_sum *ret);
int history_check_file(const char *path, FILE *report, struct history_sum *ret);

#endif
