// Numbers, bytes and rates as people write them, and back.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tools {

// Finite and 0 or more, such as 12 or 0.5; nothing for anything else.
std::optional<double> parse_number(const std::string& text);

// "65536", "1.5GB", "64KiB": KB is 1000; KiB, and k as DSC_TUNING has it, 1024. In any case of letters.
std::optional<double> parse_bytes(const std::string& text);

// "25GB/s", or in bits "100Gb/s" and "100Gbit/s", in bytes per second; nothing without "/s".
std::optional<double> parse_rate(const std::string& text);

// With the option's name in what is said of a wrong value. All throw std::invalid_argument.
double number_of(const std::string& option, const std::string& text);
double part_of(const std::string& option, const std::string& text);   // above 0, at most 1
double bytes_of(const std::string& option, const std::string& text);  // not "80G", which could be either
double rate_of(const std::string& option, const std::string& text);
int whole_of(const std::string& option, const std::string& text, int least);
std::vector<int> whole_list_of(const std::string& option, const std::string& text, int least);  // "2,4"

std::vector<std::string> split(const std::string& text, char at);

// "61.2 GB", "1.5 KB", in powers of 1000.
std::string bytes_text(double bytes);
// Of microseconds: "12.3 us", "812 ms", "1.53 s".
std::string time_text(double us);
// To so many digits, and no fewer than are before the point: with 6 72810.3 and 1234568.
double rounded_to(double value, int digits);
// The shortest that is read as the same number.
std::string exact_text(double value);

}  // namespace tools
