/*
 * Processes of a test's own servers. If the test runs as root, they run as
 * another user, because database servers refuse root. They end with the test.
 */
#ifndef IDEM_TEST_STORE_SQL_PROCESS_H
#define IDEM_TEST_STORE_SQL_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct process_how {
    const char *user;   /* the user if the test runs as root; `nobody` if there is no such user */
    const char *folder; /* the working directory; the output goes to the file `log` there */
    int death;          /* the signal that the process gets when the test ends */
    int clock_fd;       /* -1, or the clock of tests/clock_preload.c */
};

/* `argv` ends with NULL; its first word is looked up in PATH. */
pid_t process_start(const struct process_how *how, const char *const *argv);
/* Waits for the end; a failure ends the test, and prints the log. */
void process_run(const struct process_how *how, const char *const *argv);

/* The uid that a process of `user` gets. */
uid_t process_uid(const char *user);

/* Makes a directory that `user` can reach and write. */
void process_folder(const char *folder, const char *user);
/* Gives a file to `user`, so that no other user may read it. */
void process_give(const char *path, const char *user);

/* Sends SIGKILL to the process and all its descendants, and waits for their end. */
void process_kill_all(pid_t pid);

/* Sends SIGSTOP to all of them. A guard process continues them on request, and when the test
 * ends: a stopped process would not notice that. */
struct process_pause {
    pid_t guard; /* 0: none */
    int fd;
};
void process_pause_all(pid_t pid, struct process_pause *pause);
void process_go_on(struct process_pause *pause); /* accepts a process that was not paused */

/* Sends `signal`; then SIGKILL to all processes if they do not end. */
void process_end(pid_t pid, int signal);

/* Prints the file `log` of the directory, and ends the test. */
__attribute__((noreturn)) void process_fail(const char *folder, const char *what);

#endif
