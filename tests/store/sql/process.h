/*
 * Processes of a test's own servers. They run as somebody else where the test is
 * root's, because database servers refuse root, and they end with the test.
 */
#ifndef IDEM_TEST_STORE_SQL_PROCESS_H
#define IDEM_TEST_STORE_SQL_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct process_how {
    const char *user;   /* who it runs as, if we are root; nobody, if there is no such user */
    const char *folder; /* where it works; what it says goes to the file `log` there */
    int death;          /* the signal that it gets when we end */
    int clock_fd;       /* -1, or the clock of tests/clock_preload.c */
};

/* `argv` ends with NULL; its first word is looked for in PATH. */
pid_t process_start(const struct process_how *how, const char *const *argv);
/* Waits for its end; one that fails ends the test, with its log. */
void process_run(const struct process_how *how, const char *const *argv);

/* Whom a process of `user` runs as. */
uid_t process_uid(const char *user);

/* Makes the folder, for `user`, who can reach it. */
void process_folder(const char *folder, const char *user);
/* Gives a file to `user`, who alone may read it. */
void process_give(const char *path, const char *user);

/* SIGKILL for the process and all below it, which are gone then. */
void process_kill_all(pid_t pid);

/* SIGSTOP for them. A guard lets them go on when told, and when we end: a process that stands still
   would not know. */
struct process_pause {
    pid_t guard; /* 0: there is none */
    int fd;
};
void process_pause_all(pid_t pid, struct process_pause *pause);
void process_go_on(struct process_pause *pause); /* takes one that was not paused */

/* Asks it to end; SIGKILL for all of it if it does not end. */
void process_end(pid_t pid, int signal);

/* Prints the file `log` of the folder, and ends the test. */
__attribute__((noreturn)) void process_fail(const char *folder, const char *what);

#endif
