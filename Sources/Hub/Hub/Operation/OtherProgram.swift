// SPDX-License-Identifier: MIT

import EventLoop

/// Another program, run to its end by a command that has nothing else to do.
public enum OtherProgram {
  /// Pause between two looks at whether it may go on.
  private static let pause: Duration = .milliseconds(100)
  /// Bytes of its output, and of its errors, that are kept.
  private static let maxOutput = 64 << 20

  /// Blocks until it has ended. `mayGoOn`: asked again and again; `nil`: it was not allowed to. Throws `SystemError` if it cannot be started.
  public static func run(
    _ arguments: [String], environment: [String: String], while mayGoOn: @escaping () -> Bool = { true }
  ) throws -> ChildProcess.Exit? {
    let loop = EventLoop()
    var result: Result<ChildProcess.Exit?, any Error> = .success(nil)
    let program = loop.begin {
      do {
        result = .success(
          try await ChildProcess.run(
            arguments, environment: environment, input: [], limit: .seconds(30 * 86_400), maxOutput: maxOutput, on: loop
          ))
      } catch is CancellationError {
        result = .success(nil)
      } catch {
        result = .failure(error)
      }
      loop.stop()
    }
    let watch = loop.begin {
      // `try?`: cancelled when the program has ended.
      while (try? await loop.sleep(for: pause)) != nil { if !mayGoOn() { program.cancel() } }
    }
    loop.run()
    watch.cancel()
    loop.turn(wait: false)
    return try result.get()
  }
}
