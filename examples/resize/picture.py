"""Shrinks portable pixmaps (P6), a picture format that needs no library."""


def shrink(order):
    """Shrinks a picture to a width, both given in an order such as "cat.ppm 40". Returns the name of the new file."""
    source, width = order.split()
    width = int(width)
    with open(source, "rb") as file:
        picture = file.read()
    if not picture.startswith(b"P6\n"):
        raise ValueError(f"{source}: not a portable pixmap")
    _, size, depth, pixels = picture.split(b"\n", 3)
    old_width, old_height = map(int, size.split())
    height = max(1, old_height * width // old_width)
    small = bytearray()
    for row in range(height):
        for column in range(width):
            y, x = row * old_height // height, column * old_width // width
            at = 3 * (y * old_width + x)
            small += pixels[at : at + 3]
    target = source.replace(".ppm", f".{width}.ppm")
    with open(target, "wb") as file:
        file.write(b"P6\n%d %d\n%s\n" % (width, height, depth) + small)
    return target
