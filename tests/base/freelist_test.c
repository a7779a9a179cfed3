/*
 * Blocks that are kept: only so many, and the one that was given back last comes first.
 */
#include "base/freelist.h"

#include "test.h"

#define SIZE 100

TEST(no_more_are_kept_than_said) {
    struct idem_freelist freelist = {0};
    void *blocks[5];

    idem_freelist_max = 3;
    for (unsigned i = 0; i < 5; i++) {
        blocks[i] = idem_freelist_take(&freelist, SIZE);
        CHECK(blocks[i] != NULL);
    }
    CHECK_INT(freelist.n, 0);
    for (unsigned i = 0; i < 5; i++)
        idem_freelist_put(&freelist, blocks[i]);
    CHECK_INT(freelist.n, 3);
    CHECK(idem_freelist_take(&freelist, SIZE) == blocks[2]);
    CHECK_INT(freelist.n, 2);
    idem_freelist_put(&freelist, blocks[2]);
    idem_freelist_free(&freelist);
    CHECK(freelist.first == NULL);
    CHECK_INT(freelist.n, 0);
}

TEST_MAIN
