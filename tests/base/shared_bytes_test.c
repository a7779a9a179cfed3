/*
 * Shared bytes: counted references.
 */
#include "test.h"

#include "base/shared_bytes.h"

TEST(the_last_reference_frees) {
    struct idem_shared_bytes *bytes = idem_shared_bytes_new(10);

    CHECK(bytes != NULL && bytes->size == 10 && bytes->refs == 1);
    memset(bytes->at, 'x', 10);
    bytes = idem_shared_bytes_resize(bytes, 200000);
    CHECK(bytes != NULL && bytes->size == 200000 && bytes->refs == 1);
    CHECK(bytes->at[0] == 'x' && bytes->at[9] == 'x');
    CHECK(idem_shared_bytes_ref(bytes) == bytes && bytes->refs == 2);
    idem_shared_bytes_release(bytes);
    CHECK(bytes->refs == 1);
    idem_shared_bytes_release(bytes);
    CHECK(idem_shared_bytes_ref(NULL) == NULL);
    idem_shared_bytes_release(NULL);
    CHECK(idem_shared_bytes_new(SIZE_MAX) == NULL);
}

TEST(bytes_hold_what_lies_inside_as_a_whole) {
    struct idem_shared_bytes *bytes = idem_shared_bytes_new(10);

    CHECK(bytes != NULL);
    CHECK(idem_shared_bytes_hold(bytes, bytes->at, 10));
    CHECK(idem_shared_bytes_hold(bytes, bytes->at + 10, 0));
    CHECK(!idem_shared_bytes_hold(bytes, bytes->at + 1, 10));
    CHECK(!idem_shared_bytes_hold(bytes, bytes->at - 1, 1));
    CHECK(!idem_shared_bytes_hold(bytes, bytes->at, 11));
    CHECK(!idem_shared_bytes_hold(NULL, bytes->at, 1));
    idem_shared_bytes_release(bytes);
}

TEST_MAIN
