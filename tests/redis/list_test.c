#include "ask.h"
TEST_MAIN
