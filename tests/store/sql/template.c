/*
 * The data of a fresh server, made once per build and then copied: making them
 * takes seconds, copying them a moment. A template's name depends on its
 * inputs: the server's program, the user, the statements.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"
#include "engine.h"
#include "process.h"

static uint64_t mix(uint64_t hash, const void *bytes, size_t len) {
    const unsigned char *at = bytes;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ at[i]) * 1099511628211u;
    return hash;
}

static void template_name(const struct engine *engine, char *path, size_t size) {
    uint64_t hash = 14695981039346656037u;
    struct args args = {.n = 0};
    struct stat st = {0};
    uid_t uid = process_uid(engine->user);

    if (stat(engine->program(), &st) < 0)
        process_fail(engine->program(), strerror(errno));
    hash = mix(hash, &st.st_size, sizeof(st.st_size));
    hash = mix(hash, &st.st_mtim.tv_sec, sizeof(st.st_mtim.tv_sec));
    hash = mix(hash, &uid, sizeof(uid));
    engine->init("", &args);
    for (size_t i = 0; i < args.n; i++)
        hash = mix(hash, args.argv[i], strlen(args.argv[i]));
    for (size_t i = 0; i < engine->recipe_n; i++)
        hash = mix(hash, engine->recipe[i].sql, strlen(engine->recipe[i].sql));
    snprintf(path, size, SQL_TEMPLATES "/%s-%016llx", engine->name, (unsigned long long)hash);
}

/* With the test's own user: root keeps the owner of the files that it copies. */
static void copy(const char *from, const char *to) {
    pid_t pid = fork();
    int status = 0;

    if (pid == 0) {
        execlp("cp", "cp", "-r", "--preserve=mode,ownership", from, to, (char *)NULL);
        _exit(127);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        process_fail(from, "cannot be copied");
}

static void template_fill(struct server *server, const struct engine *engine) {
    struct client client = client_root(server);

    for (size_t i = 0; i < engine->recipe_n; i++) {
        const char *error;

        client.db = engine->recipe[i].db;
        error = client_try(&client, engine->recipe[i].sql, NULL, 0);
        if (error != NULL)
            process_fail(server->folder, error);
    }
}

/* The template is made beside its place, which the server's user can reach, and then moved. */
static void template_make(enum server_engine kind, const char *folder, const char *name) {
    const struct engine *engine = engine_of(kind);
    const struct process_how how = {
        .user = engine->user, .folder = folder, .death = SIGKILL, .clock_fd = -1};
    struct server server = {.engine = kind, .options = {.clock_fd = -1}};
    struct args args = {.n = 0};
    char data[300], half[400];

    snprintf(server.folder, sizeof(server.folder), "%s", folder);
    snprintf(server.socket, sizeof(server.socket), "%s%s", folder,
             kind == SERVER_POSTGRES ? "" : "/s");
    engine->init(folder, &args);
    process_run(&how, args.argv);
    engine_launch(&server, engine->first_db);
    template_fill(&server, engine);
    process_end(server.pid, engine->shut);
    snprintf(data, sizeof(data), "%.250s/data", folder);
    snprintf(half, sizeof(half), "%.300s.%d", name, (int)getpid());
    copy(data, half);
    if (rename(half, name) < 0)
        process_fail(name, strerror(errno));
}

void template_copy(enum server_engine kind, const char *folder) {
    char name[300], data[300], lock[400];
    bool made;
    int fd;

    template_name(engine_of(kind), name, sizeof(name));
    (void)mkdir(SQL_TEMPLATES, 0700);
    snprintf(lock, sizeof(lock), "%s.lock", name);
    fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX) < 0)
        process_fail(lock, strerror(errno));
    made = access(name, F_OK) < 0;
    if (made)
        template_make(kind, folder, name);
    close(fd);
    snprintf(data, sizeof(data), "%.250s/data", folder);
    if (!made)
        copy(name, data);
}
