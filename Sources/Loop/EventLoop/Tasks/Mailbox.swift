// SPDX-License-Identifier: MIT

/// Values in order, from callbacks to one task. It holds so many and no more.
public final class Mailbox<Element> {
  private let bound: Int
  private let waiter = Waiter()
  private var elements: [Element] = []
  private var isFinished = false

  public init(bound: Int) { self.bound = bound }

  public var count: Int { elements.count }

  /// False: it is full, or finished; the value was not taken.
  public func put(_ element: Element) -> Bool {
    guard !isFinished, elements.count < bound else { return false }
    elements.append(element)
    waiter.resume()
    return true
  }

  /// Nothing more will come: `next` gives what is left, and then `nil`.
  public func finish() {
    isFinished = true
    waiter.resume()
  }

  /// `nil`: it is finished. Throws when the task is cancelled.
  public func next() async throws(CancellationError) -> Element? {
    while true {
      if !elements.isEmpty { return elements.removeFirst() }
      if isFinished { return nil }
      try await waiter.wait()
    }
  }
}
