/*
 * A temporary directory for a test, which is removed when the test's process
 * ends, and the URL of a store in it.
 */
#ifndef IDEM_TEST_TEMP_H
#define IDEM_TEST_TEMP_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char temp_path[256];
static pid_t temp_owner;

static int temp_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void temp_remove(void) {
    if (temp_owner == getpid())
        (void)nftw(temp_path, temp_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The directory of this process; made at the first call. */
static const char *temp_folder(void) {
    const char *base = getenv("TMPDIR");

    if (temp_owner == getpid())
        return temp_path;
    snprintf(temp_path, sizeof(temp_path), "%s/idem-test.XXXXXX",
             base == NULL || base[0] == '\0' ? "/tmp" : base);
    if (mkdtemp(temp_path) == NULL) {
        perror(temp_path);
        exit(1);
    }
    temp_owner = getpid();
    atexit(temp_remove);
    return temp_path;
}

/* The path of a file in the directory, in a buffer that the next call overwrites. */
static inline const char *temp_file(const char *name) {
    static char path[sizeof(temp_path) + 64];

    snprintf(path, sizeof(path), "%s/%s", temp_folder(), name);
    return path;
}

/* lmdb:DIRECTORY/NAME[?OPTIONS], in one of four buffers that are used in turn. */
static inline const char *temp_url(const char *name, const char *options) {
    static char urls[4][512];
    static unsigned turn;
    char *url = urls[turn++ % 4];

    snprintf(url, sizeof(urls[0]), "lmdb:%s/%s%s%s", temp_folder(), name,
             options == NULL ? "" : "?", options == NULL ? "" : options);
    return url;
}

#endif
