/*
 * Blocks that are kept: only so many, and the one that was given back last comes first.
 */
#include "base/freelist.h"

#include "test.h"

#define SIZE 100

TEST(no_more_are_kept_than_said) {
    struct idem_spare spare = {0};
    void *blocks[5];

    idem_spare_max = 3;
    for (unsigned i = 0; i < 5; i++) {
        blocks[i] = idem_spare_take(&spare, SIZE);
        CHECK(blocks[i] != NULL);
    }
    CHECK_INT(spare.n, 0);
    for (unsigned i = 0; i < 5; i++)
        idem_spare_give(&spare, blocks[i]);
    CHECK_INT(spare.n, 3);
    CHECK(idem_spare_take(&spare, SIZE) == blocks[2]);
    CHECK_INT(spare.n, 2);
    idem_spare_give(&spare, blocks[2]);
    idem_spare_free(&spare);
    CHECK(spare.first == NULL);
    CHECK_INT(spare.n, 0);
}

TEST_MAIN
