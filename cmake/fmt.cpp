// SPDX-License-Identifier: Apache-2.0
// The functions of fmt 9, compiled once. Debian has libfmt only as headers and as a shared library, but libtandem may
// need only libc and libstdc++. With headers alone, each source file would take 2.4 seconds longer to compile.
#include <fmt/format-inl.h>

#include <locale>

// Templates that fmt/format.h declares as defined elsewhere.
template auto fmt::detail::thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto fmt::detail::decimal_point_impl<char>(locale_ref) -> char;
template auto fmt::detail::locale_ref::get<std::locale>() const -> std::locale;
