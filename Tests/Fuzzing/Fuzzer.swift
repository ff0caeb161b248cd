// SPDX-License-Identifier: MIT

import Glibc

/// What libFuzzer calls with each input. `$FUZZ_TARGET` names the target.
@_cdecl("LLVMFuzzerTestOneInput")
public func fuzzOneInput(_ data: UnsafePointer<UInt8>?, _ count: Int) -> Int32 {
  chosen.run(Array(UnsafeBufferPointer(start: data, count: count)))
  return 0
}

private let chosen: FuzzTarget = {
  let name = getenv("FUZZ_TARGET").map { String(cString: $0) } ?? ""
  guard let target = FuzzTarget(rawValue: name) else {
    fatalError("$FUZZ_TARGET is one of \(FuzzTarget.allCases.map(\.rawValue).joined(separator: ", "))")
  }
  return target
}()
