import Glibc

// <sys/xattr.h> is in no module that Swift imports; the functions are found by name in the C library.

private func symbol<Function>(_ name: String, as type: Function.Type) -> Function {
  unsafeBitCast(dlsym(nil, name), to: type)  // glibc has had both with these signatures since 2.3
}

let getxattr = symbol(
  "getxattr",
  as: (@convention(c) (UnsafePointer<CChar>, UnsafePointer<CChar>, UnsafeMutableRawPointer?, Int) -> Int).self)
let listxattr = symbol(
  "listxattr", as: (@convention(c) (UnsafePointer<CChar>, UnsafeMutablePointer<CChar>?, Int) -> Int).self)
