/*
 * The check that walks the pages of data.mdb, on files that an attacker has
 * made: it refuses them, with bounded memory and a bounded stack.
 */
#include "store/lmdb/lmdb_check.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test.h"

#define PAGE 4096
#define LEAF 0x02
#define OVERFLOW 0x04
#define NODE_BIG 0x01
#define NODE_SUB 0x02
#define NODE_AT 4000 /* the offset of the only node of a page made here */

struct page {
    uint64_t number;
    uint16_t pad, flags, lower, upper;
};

struct db {
    uint32_t pad;
    uint16_t flags, depth;
    uint64_t branches, leaves, overflows, entries, root;
};

struct meta {
    uint32_t magic, version;
    uint64_t address, mapsize;
    struct db dbs[2]; /* free pages; the tables */
    uint64_t last_page, txnid;
};

static void page_write(int fd, uint64_t number, const unsigned char bytes[PAGE]) {
    CHECK(pwrite(fd, bytes, PAGE, (off_t)(number * PAGE)) == PAGE);
}

/* A leaf with one node. */
static void leaf_write(int fd, uint64_t number, uint16_t flags, uint32_t size, const char *key,
                       size_t key_len, const void *data, size_t data_len) {
    struct page head = {.number = number, .flags = LEAF, .lower = 18, .upper = NODE_AT};
    uint16_t at = NODE_AT, low = (uint16_t)size, high = (uint16_t)(size >> 16),
             len = (uint16_t)key_len;
    unsigned char bytes[PAGE] = {0};

    memcpy(bytes, &head, sizeof(head));
    memcpy(bytes + 16, &at, 2);
    memcpy(bytes + at, &low, 2);
    memcpy(bytes + at + 2, &high, 2);
    memcpy(bytes + at + 4, &flags, 2);
    memcpy(bytes + at + 6, &len, 2);
    memcpy(bytes + at + 8, key, key_len);
    memcpy(bytes + at + 8 + key_len, data, data_len);
    page_write(fd, number, bytes);
}

static int file_new(void) {
    int fd = memfd_create("data.mdb", MFD_CLOEXEC);

    CHECK(fd >= 0);
    return fd;
}

/* The walk's result; closes the file. */
static int checked(int fd, const struct meta *meta) {
    size_t bad = 0;
    int rc;

    for (off_t i = 0; i < 2; i++)
        CHECK(pwrite(fd, meta, sizeof(*meta), i * PAGE + 16) == sizeof(*meta));
    CHECK(ftruncate(fd, (off_t)((meta->last_page + 1) * PAGE)) == 0);
    rc = lmdb_tree_check(fd, PAGE, &bad);
    close(fd);
    return rc;
}

TEST(a_list_of_free_pages_that_is_longer_than_the_file_has_pages_is_refused) {
    const uint64_t first = 3, pages = 1 + (1 << 20);
    struct meta meta = {.last_page = first + pages};
    struct page head = {.number = first, .flags = OVERFLOW};
    unsigned char bytes[PAGE] = {0};
    uint32_t count = (uint32_t)pages;
    int fd = file_new();

    meta.dbs[1].root = UINT64_MAX;
    meta.dbs[0] = (struct db){.depth = 1, .leaves = 1, .overflows = pages, .entries = 1, .root = 2};
    leaf_write(fd, 2, NODE_BIG, UINT32_MAX, "12345678", 8, &first, sizeof(first));
    memcpy(bytes, &head, sizeof(head));
    memcpy(bytes + 12, &count, sizeof(count)); /* in the place of lower and upper */
    page_write(fd, first, bytes);
    CHECK(checked(fd, &meta) != 0);
}

/* `n` tables, each inside the one before. */
static int nested(uint64_t n) {
    struct meta meta = {.last_page = n + 1};
    struct db sub = {.depth = 1, .leaves = 1, .entries = 1};
    int fd = file_new();

    meta.dbs[0].root = UINT64_MAX;
    meta.dbs[1] = sub;
    meta.dbs[1].root = 2;
    for (uint64_t i = 0; i < n; i++) {
        sub.root = 3 + i;
        if (i + 1 < n)
            leaf_write(fd, 2 + i, NODE_SUB, sizeof(sub), "k", 1, &sub, sizeof(sub));
        else
            leaf_write(fd, 2 + i, 0, 0, "k", 1, "", 0);
    }
    return checked(fd, &meta);
}

TEST(a_table_in_a_named_table_is_refused) {
    CHECK_INT(nested(1), 0);
    CHECK_INT(nested(2), 0);
    CHECK(nested(3) != 0);
    CHECK(nested(40000) != 0); /* deep enough to use up a stack */
}

TEST_MAIN
