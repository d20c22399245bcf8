// Descriptors that a child made by fork() must not keep: while it holds them, the other side of a connection
// does not see its parent die. (close-on-exec helps only those who exec.)
#pragma once

namespace dsc {

// Any thread. Numbers past a million are not kept.
void close_in_child(int fd) noexcept;
// Before the descriptor is closed in this process.
void keep_in_child(int fd) noexcept;

}  // namespace dsc
