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

/// A property of a reader. `reason` completes the sentence "it does not hold that …".
func must(_ holds: Bool, _ reason: @autoclosure () -> String, line: UInt = #line, file: StaticString = #file) {
  guard holds else { fatalError("it does not hold that \(reason())", file: file, line: line) }
}
