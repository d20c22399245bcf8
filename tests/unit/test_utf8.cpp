// A text that is cut ends between two characters.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/log_listeners.hpp"
#include "base/utf8.hpp"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using namespace dsc;

constexpr size_t kLongest = 4;  // bytes of the longest character

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

// The first and the last characters of each length, and invalid neighbors: overlong forms, surrogates of
// UTF-16, numbers above U+10FFFF (RFC 3629, section 4).
void the_bounds_are_those_of_unicode(void**) {
  for (const char* good : {"\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    assert_int_equal(utf8_length(good), std::string_view(good).size());
  for (const char* bad :
       {"\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xed\xbf\xbf",
        "\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80"})
    assert_int_equal(utf8_length(bad), 0);
}

void every_cut_is_mended(void**) {
  const std::string text = "a\u00e4b\u20acc\U0001d11e\U0001d11ed";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const size_t whole = utf8_whole({text.data(), cut});
    assert_true(whole <= cut && cut - whole < kLongest);
    assert_true(is_utf8({text.data(), whole}));
    assert_true(whole == cut || whole + utf8_length({text.data() + whole, text.size() - whole}) > cut);
  }
}

void other_bytes_stay(void**) {
  assert_int_equal(utf8_whole("\x80\x80\x80\x80"), 4);
  assert_int_equal(utf8_whole("a\x80"), 2);
  assert_int_equal(utf8_whole("a\xff"), 1);  // 0xff could be the first byte of a cut character
}

// Checks a cut text of at most `most` bytes. Only the last character may be missing.
void check_cut(std::string_view text, size_t most) {
  assert_true(is_utf8(text));
  assert_true(text.size() <= most && text.size() + kLongest > most);
  assert_int_equal(text.find('?'), std::string_view::npos);
}

std::string long_text(size_t offset) {
  std::string text(offset, 'x');
  while (text.size() < 2000) text += "\u20ac";
  return text;
}

void errors_end_with_a_whole_character(void**) {
  for (size_t offset = 0; offset < kLongest; ++offset) {
    const std::string text = long_text(offset);
    check_cut(Error(DSC_ERR_STATE, text.c_str()).what(), sizeof(Failure::text) - 1);
    try {
      (dsc::fail)(DSC_ERR_STATE, "%s", text.c_str());
    } catch (const Error& error) {
      check_cut(error.what(), sizeof(Failure::text) - 1);
    }
  }
}

void log_records_end_with_a_whole_character(void**) {
  std::string record;
  int32_t level = 0;
  read_log(DSC_LOG_LEVEL_INFO, record, level);
  for (size_t offset = 0; offset < kLongest; ++offset) {
    log(DSC_LOG_LEVEL_INFO, "%s", long_text(offset).c_str());
    assert_true(read_log(DSC_LOG_LEVEL_INFO, record, level));
    check_cut(record, 1023);
  }
  log(DSC_LOG_LEVEL_INFO, "of a caller: \xe4");
  assert_true(read_log(DSC_LOG_LEVEL_INFO, record, level));
  assert_string_equal(record.c_str(), "of a caller: ?");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_bounds_are_those_of_unicode),
      cmocka_unit_test(every_cut_is_mended),
      cmocka_unit_test(other_bytes_stay),
      cmocka_unit_test(errors_end_with_a_whole_character),
      cmocka_unit_test(log_records_end_with_a_whole_character),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
