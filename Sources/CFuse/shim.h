#pragma once
#define FUSE_USE_VERSION 314
#define _FILE_OFFSET_BITS 64
#include <fuse3/fuse_lowlevel.h>
